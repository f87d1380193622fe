#!/usr/bin/env bash
# run.sh PROTO_DIR WORK TARGET: generates Ruby stubs and runs the probe.
set -euo pipefail
proto=$1 work=$2 target=$3
mkdir -p "$work"
for name in attention error; do
  grpc_tools_ruby_protoc --proto_path="$proto" --ruby_out="$work" \
    --grpc_out="$work" "attendant/v1/$name.proto"
done
ruby "$(dirname "$0")/count_probe.rb" "$work" "$target"
