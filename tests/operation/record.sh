#!/usr/bin/env bash
# record.sh NAME...: runs the long form of these suites from build/ (or
# $ATTENDANT_BUILD) and writes NAME.json into tests/benchmark/results (or
# $ATTENDANT_RECORD_DIR). For a machine that does nothing else; on a shared one
# `chrt -r 1 record.sh NAME` (root) keeps the others' work out of the figures.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${ATTENDANT_BUILD:-$root/build}
export ATTENDANT_RECORD_DIR=${ATTENDANT_RECORD_DIR:-$root/tests/benchmark/results}
ATTENDANT_COMMIT=${ATTENDANT_COMMIT:-$(git -C "$root" rev-parse --short HEAD)}
export ATTENDANT_COMMIT
mkdir -p "$ATTENDANT_RECORD_DIR"
for name in "$@"; do
  rm -f "$ATTENDANT_RECORD_DIR/$name.json"
  "$build/tests/operation/operation_${name}_test"
done
