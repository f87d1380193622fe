#!/bin/bash
# run_fuzz.sh [--built] BUILD_DIR SECONDS [TARGET...]: builds the fuzz targets
# with clang (--built: they are there) and runs each, or those named, for so long.
# The corpus stays in BUILD_DIR/corpus, as small as it can be for what it covers.
# With ATTENDANT_RECORD_DIR what was done is added to fuzz.json there.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
built=
if [ "$1" = --built ]; then
  built=yes
  shift
fi
build_dir=$1
seconds=$2
shift 2
targets=("$@")
if [ $# -eq 0 ]; then
  targets=(wire_codec_fuzz infer_fuzz stream_fuzz config_fuzz tensor_file_fuzz)
fi
if [ -z "$built" ]; then
  cmake -S "$source_dir" -B "$build_dir" -G Ninja -DCMAKE_CXX_COMPILER=clang++ \
    -DATTENDANT_FUZZ=ON -DATTENDANT_CUDA=OFF >/dev/null
  ninja -C "$build_dir" "${targets[@]}"
fi
# A complaint of any sanitizer ends the run.
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

# fuzz TARGET
fuzz() {
  local fuzzer=$build_dir/tests/fuzz/$1 corpus=$build_dir/corpus/$1
  local log=$build_dir/$1.log
  mkdir -p "$corpus"
  "$fuzzer" --seeds "$corpus"
  "$fuzzer" -max_len=4096 -max_total_time="$seconds" -rss_limit_mb=4096 \
    -timeout=20 -artifact_prefix="$build_dir/" -print_final_stats=1 \
    "$corpus" 2>&1 | tee "$log" | grep -v '^#'
  rm -rf "$corpus.least"
  mkdir "$corpus.least"
  "$fuzzer" -merge=1 "$corpus.least" "$corpus" 2>&1 | tail -n 1
  rm -rf "$corpus"
  mv "$corpus.least" "$corpus"
  if [ -n "${ATTENDANT_RECORD_DIR:-}" ]; then
    commit=${ATTENDANT_COMMIT:-$(git -C "$source_dir" rev-parse --short HEAD)}
    ATTENDANT_COMMIT=$commit python3 "$source_dir/tests/fuzz/fuzz_record.py" \
      "$1" "$log" "$corpus" "$seconds" "$ATTENDANT_RECORD_DIR/fuzz.json"
  fi
}
for target in "${targets[@]}"; do fuzz "$target"; done
