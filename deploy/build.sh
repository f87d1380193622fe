#!/usr/bin/env bash
# build.sh [--dir DIR] [TARGET...]: configures and builds, quietly.
# GPU kernels are built where nvcc is found; everything else does without.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=build
if [ "${1:-}" = --dir ]; then dir=$2; shift 2; fi
log=$dir/build.log
mkdir -p "$dir"
echo "build: configuring and building in $dir (log: $log)"
if ! { cmake -S . -B "$dir" -G Ninja ${ATTENDANT_CMAKE_ARGS:-} &&
       cmake --build "$dir" ${1:+--target "$@"}; } >"$log" 2>&1; then
  grep -E 'error|Error|FAILED' "$log" | head -40 >&2
  tail -20 "$log" >&2
  echo "build: failed, see $log" >&2
  exit 1
fi
grep -E '^-- Attendant' "$log" | sed 's/^-- /build: /'
