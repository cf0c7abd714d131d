# Where libllama and ggml are, and a compiler cache where there is one. To be included before find_package(llama).
#
# In this order: a prefix on CMAKE_PREFIX_PATH that has the package, the environment's KEDGE_LLAMA_PREFIX, the one that
# tools/setup made. `cmake --preset release` therefore works with and without the Makefile.

function(kedge_llama_prefix OUT)
  set(PREFIX "$ENV{KEDGE_LLAMA_PREFIX}")
  if(NOT PREFIX)
    execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/setup --print-env
      OUTPUT_VARIABLE SETUP_ENV RESULT_VARIABLE FAILED)
    if(NOT FAILED AND SETUP_ENV MATCHES "KEDGE_LLAMA_PREFIX=([^\n]+)")
      set(PREFIX "${CMAKE_MATCH_1}")
    endif()
  endif()
  set(${OUT} "${PREFIX}" PARENT_SCOPE)
endfunction()

# What an earlier configuration of this folder found is forgotten when the prefix has changed.
kedge_llama_prefix(KEDGE_PREFIX)
if(DEFINED KEDGE_PREFIX_USED AND NOT KEDGE_PREFIX_USED STREQUAL KEDGE_PREFIX)
  unset(llama_DIR CACHE)
  unset(llama_LIBRARY CACHE)
  unset(ggml_DIR CACHE)
endif()
set(KEDGE_PREFIX_USED "${KEDGE_PREFIX}" CACHE INTERNAL "prefix of libllama at the last configuration")
list(APPEND CMAKE_PREFIX_PATH "${KEDGE_PREFIX}")

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(KEDGE_CCACHE ccache)
  mark_as_advanced(KEDGE_CCACHE)
  if(KEDGE_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${KEDGE_CCACHE})
  endif()
endif()
