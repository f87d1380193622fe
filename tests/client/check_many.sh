#!/usr/bin/env bash
# check_many.sh ATTENDANT TARGET: one `attendant check` for each feature.
set -euo pipefail
attendant=$1 target=$2
check() {
  if ! "$attendant" check --server="$target" --json "$@" >/dev/null; then
    echo "failed: attendant check $*" >&2
    exit 1
  fi
}
check --random=2,33,65,6,2,40
check --random=1,7,129,8,1,80,24 --dtype=bf16
check --random=1,70,70,4,4,128 --dtype=fp16 --causal
check --random=1,40,90,4,2,64 --causal --alignment=top_left
check --random=1,40,90,4,2,64 --causal --alignment=bottom_right
check --random=1,90,40,4,2,64 --causal --alignment=bottom_right
check --random=1,50,50,2,2,32 --window-left=3 --window-right=0
check --random=1,50,50,2,2,32 --softcap=2 --scale=0.7
check --random=1,50,50,2,2,32 --scale=0
check --random=1,50,50,2,2,32 --scale=-1
check --random=2,20,20,4,2,16 --alibi-slopes=0.5,0.25,0.125,0.0625
check --random=2,20,20,2,2,16 --alibi-slopes=0.5,0.25,1,2
check --random=2,20,20,4,2,16 --sinks=0,1,-inf,3
check --random=3,20,30,4,2,16 --seqlens-q=20,7,0 --seqlens-k=30,0,9
check --random=2,20,30,4,2,16 --starts-q=1,0 --starts-k=2,5 \
  --seqlens-q=19,20 --seqlens-k=20,25 --causal --alignment=bottom_right
check --random=3,17,23,4,2,16 --layout=thd --causal --alignment=bottom_right
check --random=2,17,23,4,2,16 --layout=bhsd
check --random=1,0,5,2,2,16
check --random=1,5,0,2,2,16
check --random=0,5,5,2,2,16
check --random=1,30,30,2,2,16 --dtype=bf16 --output-dtype=fp32
check --random=1,30,30,2,2,16 --compute-dtype=bf16
"$attendant" info --server="$target"
