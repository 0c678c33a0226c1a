#!/usr/bin/env bash
# Makes sure that everything the build needs is there. Silent and off the network when it is; otherwise it installs the
# packages on Debian and Ubuntu, and names them for other systems.
# usage: scripts/bootstrap.sh [lint|control|ranks|tests]
#   lint: what `make lint` needs, too
#   control: libhdf5 and MuJoCo, for offline reinforcement learning; everything else works without them
#   ranks: MPI, for training with several processes; everything else works without it
#   tests: what only tests need, NumPy, Python's headers, and what control and ranks need; without them, their tests are
#   skipped
set -eu
lint_tools=()
[ "${1:-}" != lint ] || lint_tools=(clang-format clang-tidy cppcheck)

compiler=${CC:-cc}

missing() { # one line for each thing that the build or its tests need and this machine has not
    local tool library
    for tool in "${compiler%% *}" cmake pkg-config python3 ${lint_tools[@]+"${lint_tools[@]}"}; do
        command -v "$tool" >/dev/null || echo "$tool"
    done
    for library in inih cmocka; do
        pkg-config --exists "$library" 2>/dev/null || echo "$library"
    done
}

install_with_apt() {
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "minrnn: run as root: apt-get install -y $*" >&2; exit 1; }
        root=(sudo)
    fi
    echo "minrnn: ${root[*]:-} apt-get install -y --no-install-recommends $*"
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

has_numpy() { # in one of the interpreters that the tests try
    local python
    for python in python3 /usr/bin/python3; do
        "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("numpy"))' 2>/dev/null && return
    done
    return 1
}

has_python_headers() {
    python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}

has_hdf5() { pkg-config --exists hdf5-serial 2>/dev/null || pkg-config --exists hdf5 2>/dev/null; }

has_mujoco() { # the system's, or that of the Python package, as scripts/control.cmake finds them
    local folder
    for folder in /usr /usr/local; do
        [ ! -e "$folder/include/mujoco/mujoco.h" ] || return 0
    done
    python3 -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("mujoco"))' 2>/dev/null
}

name_control_parts() { # how to install what control still lacks
    local how=(the development files of libhdf5)
    if command -v dnf >/dev/null; then how=(sudo dnf install hdf5-devel)
    elif command -v pacman >/dev/null; then how=(sudo pacman -S --needed hdf5)
    elif command -v brew >/dev/null || [ "$(uname -s)" = Darwin ]; then how=(brew install hdf5)
    elif command -v apt-get >/dev/null; then how=(apt-get install libhdf5-dev)
    fi
    has_hdf5 || echo "minrnn: no HDF5 here, for D4RL's files: ${how[*]}"
    has_mujoco || echo "minrnn: no MuJoCo here, for the simulations: python3 -m pip install mujoco==3.3.7" \
        "(or Debian's libmujoco-dev)"
}

install_control_parts() { # one by one: older releases of Debian and Ubuntu have no MuJoCo
    command -v apt-get >/dev/null || return 0
    has_hdf5 || (install_with_apt libhdf5-dev) || true
    has_mujoco || (install_with_apt libmujoco-dev) || true
}

has_mpi() { command -v mpicc >/dev/null && command -v mpirun >/dev/null; }

install_mpi() {
    has_mpi || ! command -v apt-get >/dev/null || (install_with_apt openmpi-bin libopenmpi-dev) || true
}

if [ "${1:-}" = ranks ]; then
    install_mpi
    has_mpi || {
        echo "minrnn: no MPI here: install Open MPI or MPICH with its compiler, mpicc (Fedora: openmpi-devel; Arch" \
            "and Homebrew: open-mpi)" >&2
        exit 1
    }
    echo "minrnn: MPI is here; run make again"
    exit 0
fi

if [ "${1:-}" = control ]; then
    install_control_parts
    name_control_parts >&2
    if ! has_hdf5 || ! has_mujoco; then exit 1; fi
    echo "minrnn: HDF5 and MuJoCo are here; run make again"
    exit 0
fi

if [ "${1:-}" = tests ]; then
    install_control_parts
    install_mpi
    has_mpi || echo "minrnn: no MPI here (scripts/bootstrap.sh ranks): the tests of ranks will be left out"
    if ! has_python_headers && command -v apt-get >/dev/null; then (install_with_apt python3-dev) || true; fi
    has_python_headers ||
        echo "minrnn: no Python headers here (python3-dev): the tests of the Python package will be skipped"
    if ! has_numpy && command -v apt-get >/dev/null; then (install_with_apt python3-numpy) || true; fi
    has_numpy || echo "minrnn: no NumPy here (python3-numpy): the tests with tests/reader.py will be skipped"
    if ! has_hdf5 || ! has_mujoco; then
        echo "minrnn: no HDF5 or no MuJoCo here (scripts/bootstrap.sh control): the tests of control will be skipped"
    fi
    exit 0
fi

lacking=$(missing | paste -sd ' ' -)
[ -n "$lacking" ] || exit 0
echo "minrnn: not found here: $lacking"

name_command() {
    echo "minrnn: install them with: $*" >&2
    echo "minrnn: then run make again" >&2
    exit 1
}

if command -v apt-get >/dev/null; then
    packages=(build-essential cmake pkg-config libinih-dev libcmocka-dev python3)
    packages+=(${lint_tools[@]+"${lint_tools[@]}"})
    case $compiler in *clang*) packages+=(clang) ;; esac
    install_with_apt "${packages[@]}"
    # Only `minrnn data get` needs libcurl: the build works without it.
    pkg-config --exists libcurl || install_with_apt libcurl4-openssl-dev ||
        echo "minrnn: continuing without downloads (libcurl)"
elif command -v dnf >/dev/null; then
    name_command sudo dnf install gcc make cmake pkgconf-pkg-config inih-devel libcmocka-devel libcurl-devel python3
elif command -v pacman >/dev/null; then
    name_command sudo pacman -S --needed base-devel cmake pkgconf libinih cmocka curl python
elif command -v brew >/dev/null || [ "$(uname -s)" = Darwin ]; then
    name_command "xcode-select --install; brew install cmake pkgconf inih cmocka curl python"
else
    name_command "your package manager: a C compiler, cmake, pkg-config, python3," \
        "and the development files of inih and cmocka (libcurl is optional)"
fi

lacking=$(missing | paste -sd ' ' -)
[ -z "$lacking" ] || { echo "minrnn: still not found: $lacking" >&2; exit 1; }
