# Writes files as C strings: ${ARRAY}_names[] and ${ARRAY}_texts[], both NULL-terminated, as app/train/recipes.h declares them.
set(names "")
set(texts "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" text "${hex}")
  # Pieces of 40 bytes: compilers limit the length of one literal, and \x must not swallow what follows it.
  string(REGEX REPLACE "((\\\\x..)(\\\\x..)?(\\\\x..)?(\\\\x..)?(\\\\x..)?(\\\\x..)?(\\\\x..)?(\\\\x..)?)" "\"\\1\"\n" text "${text}")
  string(APPEND names "\"${name}\", ")
  string(APPEND texts "${text},\n")
endforeach()
file(WRITE ${OUT} "#include \"train/recipes.h\"\n#include <stddef.h>\nconst char *const ${ARRAY}_names[] = {${names}NULL};\nconst char *const ${ARRAY}_texts[] = {\n${texts}NULL};\n")
