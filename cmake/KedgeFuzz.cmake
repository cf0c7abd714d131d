# kedge_fuzz(SOURCE libs...): with -DKEDGE_FUZZ=ON (clang), builds src/.../x_fuzz.cpp as the program fuzz_x; the target
# `fuzz` builds all of them. Include before the folders: with KEDGE_FUZZ everything is instrumented.
if(KEDGE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  add_custom_target(fuzz)
endif()

function(kedge_fuzz SOURCE)
  if(NOT KEDGE_FUZZ)
    return()
  endif()
  get_filename_component(NAME ${SOURCE} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" NAME ${NAME})
  add_executable(fuzz_${NAME} ${SOURCE})
  target_link_libraries(fuzz_${NAME} PRIVATE ${ARGN})
  target_link_options(fuzz_${NAME} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzz fuzz_${NAME})
endfunction()
