# Writes files as C strings: ${ARRAY}_names[] and ${ARRAY}_texts[], both NULL-terminated, declared in
# app/train/recipes.h.
set(names "")
set(texts "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" text "${hex}")
  # In pieces of 8 bytes, one a line.
  set(byte "(\\\\x..)")
  string(REGEX REPLACE "(${byte}${byte}?${byte}?${byte}?${byte}?${byte}?${byte}?${byte}?)" "\"\\1\"\n" text "${text}")
  string(APPEND names "\"${name}\", ")
  string(APPEND texts "${text},\n")
endforeach()
file(WRITE ${OUT} "#include \"train/recipes.h\"\n#include <stddef.h>\n"
     "const char *const ${ARRAY}_names[] = {${names}NULL};\n"
     "const char *const ${ARRAY}_texts[] = {\n${texts}NULL};\n")
