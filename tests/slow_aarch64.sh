#!/usr/bin/env bash
# The whole of minrnn built for 64-bit ARM, and its tests under qemu-user.
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
bash "$(dirname "$0")/../scripts/aarch64.sh" "$build"
