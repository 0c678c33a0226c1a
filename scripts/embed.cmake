# Writes the recipes as C strings: mr_recipe_names[] and mr_recipe_texts[], both NULL-terminated.
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
file(WRITE ${OUT} "#include \"run/recipes.h\"\n#include <stddef.h>\nconst char *const mr_recipe_names[] = {${names}NULL};\nconst char *const mr_recipe_texts[] = {\n${texts}NULL};\n")
