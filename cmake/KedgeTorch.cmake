# libtorch, for the one component that trains through the model (apps/train_lm). KEDGE_TORCH=AUTO takes it where it is
# found, ON insists, OFF does without. Debian's libtorch-dev is found by itself, a pip torch through -DTorch_DIR=...
# (python3 -c 'import torch; print(torch.utils.cmake_prefix_path)' prints where its CMake package lies).
set(KEDGE_TORCH AUTO CACHE STRING "Build kedge-train-lm, which needs libtorch: AUTO, ON or OFF")
set_property(CACHE KEDGE_TORCH PROPERTY STRINGS AUTO ON OFF)

# Makes the library kedge_torch, or not. A function: what the package sets as variables, flags among them, ends here,
# and its targets bring their flags only to those that link them.
function(kedge_find_torch)
  if(NOT KEDGE_TORCH)
    return()
  endif()
  find_package(Torch QUIET)
  set(WHY "")
  if(NOT Torch_FOUND)
    set(WHY "libtorch was not found: tools/setup --with train installs Debian's, -DTorch_DIR names another")
  elseif("${TORCH_CXX_FLAGS}" MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    set(WHY "${TORCH_INSTALL_PREFIX} is of the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0), which nothing else here is")
  endif()
  if(WHY AND KEDGE_TORCH STREQUAL "AUTO")
    message(STATUS "kedge-train-lm is left out: ${WHY}")
    return()
  elseif(WHY)
    message(FATAL_ERROR "KEDGE_TORCH=${KEDGE_TORCH}: ${WHY}")
  endif()
  add_library(kedge_torch INTERFACE)
  target_link_libraries(kedge_torch INTERFACE ${TORCH_LIBRARIES})
  target_include_directories(kedge_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  message(STATUS "kedge-train-lm with libtorch ${Torch_VERSION}")
endfunction()
