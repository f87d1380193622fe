#!/usr/bin/env bash
# install_and_build.sh BUILD WORK: installs the client from BUILD into
# WORK/prefix, builds this folder against it and runs the consumer; the same for the
# C interface, in WORK/c.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1 work=$2
rm -rf "$work"
cmake --install "$build" --component attendant-client --prefix "$work/prefix" \
  >/dev/null
cmake -S "$here" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_BUILD_TYPE=Release >"$work/configure.log"
cmake --build "$work/build" -j2
# Nothing of the source tree but this folder and the example.
if grep -rlE "$(cd "$here/../../.." && pwd)/(proto|server|kernels)" \
    "$work/prefix" --include='*.cmake' --include='*.h'; then
  echo "the installed package points into the source tree" >&2
  exit 1
fi
"$work/build/consumer"
# The C interface: its header, its library and a C compiler.
cmake --install "$build" --component attendant-client-c --prefix "$work/c" >/dev/null
libraries=$(dirname "$(find "$work/c" -name libattendant_client.so)")
cc -std=c11 -Wall -Wextra -Werror "$here/c_consumer.c" -I "$work/c/include" \
  -L "$libraries" -Wl,-rpath,"$libraries" -lattendant_client -o "$work/c/consumer"
"$work/c/consumer"
"$work/prefix/bin/attendant" --help >/dev/null
