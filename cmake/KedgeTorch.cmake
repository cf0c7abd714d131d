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
  # The package that was named finds its own parts before those of another libtorch on this machine; what an earlier
  # configuration found of another one is forgotten.
  if(NOT Torch_DIR AND DEFINED ENV{Torch_DIR})
    set(Torch_DIR "$ENV{Torch_DIR}")
  endif()
  if(Torch_DIR)
    list(PREPEND CMAKE_PREFIX_PATH "${Torch_DIR}/../../..")
  endif()
  if(NOT "${Torch_DIR}" STREQUAL "${KEDGE_TORCH_USED}")
    unset(Caffe2_DIR CACHE)
    unset(TORCH_LIBRARY CACHE)
    unset(C10_CUDA_LIBRARY CACHE)
  endif()
  # A libtorch with CUDA asks which GPUs to compile for; nothing is compiled for any here.
  if(NOT DEFINED TORCH_CUDA_ARCH_LIST)
    set(TORCH_CUDA_ARCH_LIST "8.0")
  endif()
  find_package(Torch QUIET)
  set(KEDGE_TORCH_USED "${Torch_DIR}" CACHE INTERNAL "CMake package of libtorch at the last configuration")
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
  # The part for CPUs alone: it is what is used, and a libtorch with CUDA would load gigabytes.
  if(TARGET torch_cpu)
    target_link_libraries(kedge_torch INTERFACE torch_cpu c10)
    separate_arguments(FLAGS UNIX_COMMAND "${TORCH_CXX_FLAGS}")
    target_compile_options(kedge_torch INTERFACE ${FLAGS})
    # A wheel's own libraries lie where the loader finds them, but not the linker.
    target_link_options(kedge_torch INTERFACE -Wl,--allow-shlib-undefined)
  else()
    target_link_libraries(kedge_torch INTERFACE ${TORCH_LIBRARIES})
  endif()
  target_include_directories(kedge_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  message(STATUS "kedge-train-lm with libtorch ${Torch_VERSION}")
endfunction()
