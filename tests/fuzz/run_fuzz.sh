#!/bin/bash
# run_fuzz.sh BUILD_DIR SECONDS: builds the fuzz targets with clang and runs
# each for so long. The long tier's test.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
build_dir=$1
seconds=$2
cmake -S "$source_dir" -B "$build_dir" -G Ninja -DCMAKE_CXX_COMPILER=clang++ \
  -DATTENDANT_FUZZ=ON -DATTENDANT_CUDA=OFF >/dev/null
ninja -C "$build_dir" wire_codec_fuzz tensor_file_fuzz stream_fuzz
fuzzers=$build_dir/tests/fuzz
mkdir -p "$build_dir"/corpus/{wire,files,stream}
"$fuzzers/wire_codec_fuzz" --seeds "$build_dir/corpus/wire"
"$fuzzers/stream_fuzz" --seeds "$build_dir/corpus/stream"

# fuzz NAME CORPUS
fuzz() {
  "$fuzzers/$1" -max_len=4096 -max_total_time="$seconds" -rss_limit_mb=4096 \
    -artifact_prefix="$build_dir/" -print_final_stats=1 \
    "$build_dir/corpus/$2"
}
fuzz wire_codec_fuzz wire
fuzz tensor_file_fuzz files
fuzz stream_fuzz stream
