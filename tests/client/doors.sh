#!/usr/bin/env bash
# doors.sh SERVER ATTENDANT: every door of this build gives bitwise the unary
# door's answer, for every layout, with and without LSE, whether calls are
# prepared or not. A door that the build or the server has not says UNIMPLEMENTED,
# with its name.
set -euo pipefail
. "$(dirname "$0")/start_server.sh"
server=$1 attendant=$2
work=$(mktemp -d)
start_server "$server" "$work" --regions=buffers,cuda_ipc
answered=0
calls=(prepared out new)
for door in unary stream striped shm ipc auto; do
  for layout in bshd bhsd thd; do
    for lse in true false; do
      code=0
      "$attendant" bench --server="$grpc" --door=$door --layout=$layout \
        --lse=$lse --verify --causal --dtype=bf16 --requests=3 --warmup=0 \
        --shapes=b2s65h4g2d40,q1k300h2d64,s1500h4d128 --concurrency=2 \
        --connections=2 --call=${calls[$((answered % 3))]} \
        > "$work/out" 2> "$work/err" || code=$?
      if [ $code = 0 ]; then
        answered=$((answered + 1))
      elif [ $code = 3 ] && grep -q UNIMPLEMENTED "$work/err" &&
          [ $door != unary ] && [ $door != auto ]; then
        echo "$door: $(head -1 "$work/err")"
        break 2
      else
        echo "$door $layout: exit code $code"
        cat "$work/out" "$work/err"
        exit 1
      fi
    done
  done
done
echo "$answered combinations answered alike"
[ $answered -ge 12 ]
