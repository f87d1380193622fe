#!/usr/bin/env bash
# sanitize.sh asan|tsan BUILD_DIR [JOBS]: builds C++ tests with sanitizers and runs
# them. asan (with UBSan): server, engine, operation's deadlines and
# cancellations over gRPC. tsan: what runs without gRPC, which Debian does not
# instrument: log, turns to look for events, scheduler, executors with fakes,
# regions, deadlines.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
kind=$1
build=$2
jobs=${3:-$(nproc)}
tests=(server_log_test server_poll_turns_test server_engine_test
  server_regions_test
  attention_engine_test operation_engine_deadline_test)
if [ "$kind" = asan ]; then
  tests+=(server_front_test server_service_test server_call_test
    server_connections_test server_tracing_test operation_deadline_test)
fi
cmake -S "$root" -B "$build" --preset "$kind" >/dev/null
ninja -C "$build" -j "$jobs" "${tests[@]}"
# A complaint of any sanitizer fails its test.
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1
ctest --test-dir "$build" --output-on-failure --no-tests=error --timeout 900 \
  -R "^($(IFS='|'; echo "${tests[*]}"))\$"
