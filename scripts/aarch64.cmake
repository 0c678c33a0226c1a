# A toolchain for 64-bit ARM, with qemu-user to run what it builds. The libraries are Debian's multiarch packages,
# installed, or unpacked below the folder that MINRNN_AARCH64_ROOT names.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
# Without -L: the cross compiler's loader in /usr/aarch64-linux-gnu does not fit the C library of the arm64 packages,
# and with the two mixed every pthread_create loops for ever.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
set(ENV{PKG_CONFIG_LIBDIR} "$ENV{MINRNN_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "$ENV{MINRNN_AARCH64_ROOT}")
