#!/bin/bash
# aarch64_test.sh BUILD_DIR: builds the kernels for 64-bit Arm with Debian's
# cross compiler and runs the CPU backend's tests under QEMU, so that NEON, from
# the same source as every other instruction set, is computed and not only
# compiled. Exit status 77 (skipped, aloud) where a tool is missing.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../../.." && pwd)
build_dir=$1
triple=aarch64-linux-gnu
for tool in $triple-g++ qemu-aarch64 apt-get dpkg; do
  command -v $tool >/dev/null && continue
  echo "skipped: $tool is missing (deploy/setup.sh --long installs it)"
  exit 77
done

# The libraries' arm64 packages, unpacked into a folder of their own with lists
# of their own: the system's package state is not touched.
mkdir -p "$build_dir"/apt/{lists,cache}/partial "$build_dir"/sysroot
arm64=(-oAPT::Architecture=arm64 -oAPT::Architectures=arm64
  -oDir::State::Lists="$build_dir/apt/lists"
  -oDir::Cache="$build_dir/apt/cache" -oDir::State::status=/dev/null
  -oAPT::Sandbox::User= -qq)
apt-get "${arm64[@]}" update
packages=(libabsl-dev libhwy-dev libgtest-dev libgmock-dev)
# What holds the shared objects has the version in its name.
libraries=$(apt-cache "${arm64[@]}" depends libabsl-dev libhwy-dev |
  sed -n 's/^ *Depends: \(lib\(absl\|hwy\)[0-9][^ ]*\)$/\1/p' | sort -u)
(cd "$build_dir/apt/cache" && rm -f ./*.deb &&
  apt-get "${arm64[@]}" download "${packages[@]}" $libraries)
for package in "$build_dir"/apt/cache/*.deb; do
  dpkg -x "$package" "$build_dir/sysroot"
done

cat > "$build_dir/toolchain.cmake" <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER $triple-gcc)
set(CMAKE_CXX_COMPILER $triple-g++)
set(CMAKE_LIBRARY_ARCHITECTURE $triple)
set(CMAKE_FIND_ROOT_PATH "$build_dir/sysroot" /usr/$triple)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
END
launcher=()
if command -v ccache >/dev/null; then
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake -S "$source_dir" -B "$build_dir/build" -G Ninja "${launcher[@]}" \
  -DCMAKE_TOOLCHAIN_FILE="$build_dir/toolchain.cmake" \
  -DATTENDANT_CUDA=OFF -DATTENDANT_SERVER=OFF >/dev/null
tests=(cpu_simd_kernels_test cpu_attention_test conformance_test)
ninja -C "$build_dir/build" "${tests[@]}"

export QEMU_LD_PREFIX=/usr/$triple ATTENDANT_TEST_KERNELS=cpu
for test in "${tests[@]}"; do
  qemu-aarch64 -E LD_LIBRARY_PATH="$build_dir/sysroot/usr/lib/$triple" \
    "$(find "$build_dir/build/tests" -name "$test" -type f)"
done
