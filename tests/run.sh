#!/usr/bin/env bash
# run.sh [--long] [--built] [CTEST ARG...]: sets up, builds and runs the tests;
# --built takes what is in build/ and sets up and builds nothing.
# The quick tier is what CI runs; --long adds soak, sanitizers and everything
# that takes minutes. Tests that need a GPU skip aloud where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
exclude=(-LE long)
setup=--tests
# Of one test; the slowest quick one takes 20 s on two cores.
timeout=300
if [ "${1:-}" = --long ]; then
  exclude=()
  setup=--long
  timeout=900
  export ATTENDANT_TEST_LONG=1
  shift
fi
if [ "${1:-}" = --built ]; then
  shift
else
  start=$SECONDS
  deploy/setup.sh $setup
  ATTENDANT_CMAKE_ARGS="-DATTENDANT_TESTS=ON ${ATTENDANT_CMAKE_ARGS:-}" deploy/build.sh
  echo "tests: built in $((SECONDS - start)) s"
fi
ctest --test-dir build --output-on-failure --no-tests=error \
  --timeout $timeout "${exclude[@]}" "$@"
