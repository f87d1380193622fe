#!/usr/bin/env bash
# watch.sh SERVER ATTENDANT: attendant watch and bench against a server with an
# HTTP port: what watch counts is what bench sent.
set -euo pipefail
server=$1 attendant=$2
. "$(dirname "$0")/start_server.sh"
start_server "$server" "$(mktemp -d)" --http=127.0.0.1:0
http=$(sed -E 's/.* http=([^ ]+) .*/\1/' "$work/start")
# The first frame shows that it has looked before the calls came; two more after
# them have seen them all, however the machine shared its time.
"$attendant" watch --server="$grpc" --http="$http" --json --interval=0.3 \
  > "$work/frames" &
watch=$!
frames() {
  until [ "$(grep -c '}$' "$work/frames")" -ge "$1" ]; do
    kill -0 $watch
    read -rt 0.1 <> <(:) || true
  done
}
frames 1
"$attendant" bench --server="$grpc" --shapes=s16h2d64 --requests=50 --warmup=0 \
  --dtype=bf16 --verify --json="$work/rows.json" --html="$work/page.html"
frames $(($(grep -c '}$' "$work/frames") + 2))
kill -TERM $watch
wait $watch
"$attendant" watch --server="$grpc" --http="$http" --count=1 --interval=0.1 |
  grep -q 'host pool'
"$attendant" plot "$work/rows.json" --what=stages | grep -q '</svg>'
grep -q '</html>' "$work/page.html"
python3 - "$work/frames" <<'PY'
import json, sys
frames = [json.loads(line) for line in open(sys.argv[1])]
calls = sum(frame["requests_per_s"] * frame["seconds"] for frame in frames)
assert 50 <= round(calls) <= 52, frames  # --verify makes two more
busy = [frame for frame in frames if frame["requests_per_s"] > 0]
assert all(frame["stages"]["kernel"]["p99_ms"] > 0 for frame in busy), busy
PY
if "$attendant" watch --server="$grpc" --http=127.0.0.1:1 --count=1; then
  exit 1
else
  [ $? = 4 ]
fi
