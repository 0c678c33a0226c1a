# What control needs: libhdf5 for D4RL's files, MuJoCo for the simulations. Both are optional. Sets HDF5_TARGET and
# MUJOCO_TARGET to targets, or to nothing, and MUJOCO_RPATH to the folder of a MuJoCo that the system does not find by
# itself.
if(MINRNN_HDF5)
  pkg_search_module(HDF5 IMPORTED_TARGET hdf5-serial hdf5)
  if(HDF5_FOUND)
    set(HDF5_TARGET PkgConfig::HDF5)
  endif()
endif()

# Newer versions than this one give other transitions than those that D4RL's environments have.
set(MUJOCO_NEWEST 3.3.7)

# "3.3.7" of the header's 337, and "3.10.0" of 3010000, as newer ones count.
function(read_mujoco_version header out)
  file(STRINGS ${header} line REGEX "#define +mjVERSION_HEADER")
  string(REGEX MATCH "[0-9]+" number "${line}")
  if(number GREATER 999)
    math(EXPR major "${number} / 1000000")
    math(EXPR minor "${number} / 1000 % 1000")
    math(EXPR patch "${number} % 1000")
    set(${out} ${major}.${minor}.${patch} PARENT_SCOPE)
  else()
    string(REGEX REPLACE "^(.)(.)(.)$" "\\1.\\2.\\3" version "${number}")
    set(${out} "${version}" PARENT_SCOPE)
  endif()
endfunction()

# The header and the library that belong together: in a folder (an unpacked release, or that of the Python package,
# which has libmujoco.so.3.3.7 alone, without a link), or, without one, in the system. Nothing is kept for the next
# run of CMake, because the folder may be another one then.
function(find_mujoco_files folder include_out library_out)
  unset(found_include CACHE)
  unset(found_library CACHE)
  if(folder)
    set(only PATHS ${folder} NO_DEFAULT_PATH)
    file(GLOB versioned ${folder}/libmujoco.so.* ${folder}/lib/libmujoco.so.* ${folder}/libmujoco.*.dylib
         ${folder}/lib/libmujoco.*.dylib)
  endif()
  find_path(found_include mujoco/mujoco.h PATH_SUFFIXES include ${only})
  find_library(found_library mujoco PATH_SUFFIXES lib lib/${CMAKE_LIBRARY_ARCHITECTURE} ${only})
  if(NOT found_library AND versioned)
    list(GET versioned 0 found_library)
  endif()
  set(${include_out} ${found_include} PARENT_SCOPE)
  set(${library_out} ${found_library} PARENT_SCOPE)
  unset(found_include CACHE)
  unset(found_library CACHE)
endfunction()

function(find_mujoco folder)
  find_mujoco_files("${folder}" include library)
  if(NOT include OR NOT library)
    return()
  endif()
  read_mujoco_version(${include}/mujoco/mujoco.h version)
  if(version STREQUAL "" OR version VERSION_GREATER MUJOCO_NEWEST)
    message(NOTICE "minrnn: MuJoCo ${version} in ${include} is too new for control: at most ${MUJOCO_NEWEST}")
    return()
  endif()
  add_library(mujoco_found SHARED IMPORTED)
  set_target_properties(mujoco_found PROPERTIES IMPORTED_LOCATION ${library})
  set_property(TARGET mujoco_found PROPERTY INTERFACE_INCLUDE_DIRECTORIES ${include})
  set(MUJOCO_TARGET mujoco_found PARENT_SCOPE)
  if(folder)
    get_filename_component(rpath ${library} DIRECTORY)
    set(MUJOCO_RPATH ${rpath} PARENT_SCOPE)
  endif()
endfunction()

# The folder of the Python package; importing it would need OpenGL.
function(find_mujoco_package out)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c "import importlib.util as u; s = u.find_spec('mujoco'); \
print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${out} ${folder} PARENT_SCOPE)
endfunction()

if(MINRNN_MUJOCO STREQUAL "AUTO")
  find_mujoco("")
  if(NOT MUJOCO_TARGET)
    find_mujoco_package(folder)
    if(folder)
      find_mujoco("${folder}")
    endif()
  endif()
elseif(MINRNN_MUJOCO)
  get_filename_component(folder "${MINRNN_MUJOCO}" ABSOLUTE)
  find_mujoco("${folder}")
  if(NOT MUJOCO_TARGET)
    message(FATAL_ERROR "MINRNN_MUJOCO=${MINRNN_MUJOCO}: has no include/mujoco/mujoco.h and libmujoco of at most "
                        "${MUJOCO_NEWEST}; give the folder of a release or of the Python package, AUTO or OFF")
  endif()
endif()
