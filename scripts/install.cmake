# `make install`: the command with its man page and completions, both libraries, both headers, and the files with which
# pkg-config and CMake find them.
include(CMakePackageConfigHelpers)

install(TARGETS minrnn minrnn_static)
if(NOT MINRNN_STATIC)
  install(TARGETS minrnn_shared)
endif()
install(FILES include/minrnn.h include/minrnn_experimental.h TYPE INCLUDE)

# What a program that links the static library also needs, as plain flags.
set(STATIC_FLAGS -lm -pthread)
if(MINRNN_CBLAS)
  list(APPEND STATIC_FLAGS ${CBLAS_LDFLAGS})
endif()
if(CMAKE_CUDA_COMPILER)
  list(APPEND STATIC_FLAGS -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt)
endif()
string(REPLACE ";" " " PC_FLAGS "${STATIC_FLAGS}")

# The path from the .pc file to the prefix, so that an installed tree can be moved.
file(RELATIVE_PATH PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(scripts/minrnn.pc.in minrnn.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/minrnn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/minrnn)
configure_package_config_file(scripts/minrnnConfig.cmake.in ${CMAKE_BINARY_DIR}/minrnnConfig.cmake
  INSTALL_DESTINATION ${PACKAGE_DIR} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/minrnnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/minrnnConfig.cmake ${CMAKE_BINARY_DIR}/minrnnConfigVersion.cmake
  DESTINATION ${PACKAGE_DIR})

# The man page and the completions are made from the command's own --help. A command that was built for another machine
# needs an emulator for that.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
  set(MANUAL ${CMAKE_BINARY_DIR}/manual)
  add_custom_command(OUTPUT ${MANUAL}/minrnn.1
    COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/scripts/manual.py ${MANUAL} ${CMAKE_CROSSCOMPILING_EMULATOR}
            $<TARGET_FILE:minrnn>
    DEPENDS minrnn scripts/manual.py VERBATIM)
  add_custom_target(manual ALL DEPENDS ${MANUAL}/minrnn.1)
  install(FILES ${MANUAL}/minrnn.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${MANUAL}/minrnn DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${MANUAL}/_minrnn DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${MANUAL}/minrnn.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
