# cmake -DKEDGE=program -DPAGE=docs/reference.md -P CheckReference.cmake: is the page what the program prints?
execute_process(COMMAND ${KEDGE} --help-markdown OUTPUT_VARIABLE PRINTED RESULT_VARIABLE FAILED)
file(READ ${PAGE} WRITTEN)
if(FAILED OR NOT PRINTED STREQUAL WRITTEN)
  message(FATAL_ERROR "${PAGE} is not what `kedge --help-markdown` prints: run `ninja reference`")
endif()
