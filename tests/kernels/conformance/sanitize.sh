#!/bin/bash
# Runs the conformance suite under compute-sanitizer on this machine's GPU, a
# process for each case, and prints one line for each kernel and tool.
#
#     sanitize.sh CONFORMANCE_TEST [TOOL] [KERNEL] [FILTER]
#
# TOOL: memcheck (default), racecheck, initcheck, synccheck. KERNEL: sm90
# (default), sm80. FILTER: of gtest, without the kernel's name ("*Poison*").
# JOBS (default: the cores): cases at once. LIMIT (default 240): seconds a case.
# LOGS (default: a temporary folder): where each case's output goes.
# Exits 1 if a case failed, had an error or a hazard, or ran out of time, or if
# none ran.
set -euo pipefail
test=$(realpath "$1") tool=${2:-memcheck} kernel=${3:-sm90} filter=${4:-*}
logs=${LOGS:-$(mktemp -d)}
export ATTENDANT_TEST_KERNELS=$kernel ATTENDANT_TEST_EXACT=1

cases=$("$test" --gtest_list_tests \
  --gtest_filter="${filter}/$kernel:-*LargeTest*:*FewFreeMultiprocessors*" |
  awk '/^[^ ]/ {suite = $1} /^ / {print suite $1}')

one() {
  local log=$logs/${4//\//-}.$2.log
  timeout "$3" compute-sanitizer --tool "$2" --error-exitcode 9 "$1" \
    --gtest_filter="$4" >"$log" 2>&1 || echo "exit code $?" >>"$log"
}
export -f one
export logs
mkdir -p "$logs"
xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'one "$@"' _ \
  "$test" "$tool" "${LIMIT:-240}" {} <<<"$cases"

clean=0 skipped=0 bad=()
for case in $cases; do
  log=$logs/${case//\//-}.$tool.log
  if grep -q '^exit code' "$log" ||
    ! grep -q 'SUMMARY: 0 ' "$log"; then
    bad+=("$case: $(grep -m1 -E '^exit code|SUMMARY' "$log" || echo none)")
  elif grep -q '^\[  SKIPPED' "$log"; then
    skipped=$((skipped + 1))
  else
    clean=$((clean + 1))
  fi
done
echo "$tool $kernel: $clean cases clean, $skipped skipped, ${#bad[@]} not clean"
[ ${#bad[@]} -eq 0 ] || { printf '  %s\n' "${bad[@]}"; exit 1; }
[ "$clean" -gt 0 ]
