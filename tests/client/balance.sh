#!/usr/bin/env bash
# balance.sh SERVER ATTENDANT: two servers share the command's calls, and one
# that drains loses none of them.
set -euo pipefail
server=$1 attendant=$2
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
for one in 1 2; do
  : > "$work/start$one"
  "$server" --listen=127.0.0.1:0 --http=127.0.0.1:0 --lame_duck_seconds=1 \
    --host_pool_bytes=64M > "$work/start$one" 2> "$work/log$one" &
  pids[one]=$!
  until grep -q ' ready: ' "$work/start$one"; do
    kill -0 ${pids[one]} || { cat "$work/log$one"; exit 1; }
    read -rt 0.1 <> <(:) || true
  done
  grpc[one]=$(sed -E 's/.* grpc=([^ ]+) .*/\1/' "$work/start$one")
  http[one]=$(sed -E 's/.* http=([^ ]+) .*/\1/' "$work/start$one")
done
both=${grpc[1]},${grpc[2]}
bench=("$attendant" bench --server="$both" --shapes=s16h2d64 --dtype=bf16
  --verify --max-attempts=5)
answered() {
  python3 - "${http[$1]}" <<'PY'
import re, sys, urllib.request
text = urllib.request.urlopen(f"http://{sys.argv[1]}/metrics").read().decode()
sample = r'attendant_requests_finished_total\{method="Attend",code="OK"\} (\S+)'
print(int(float(re.search(sample, text)[1])))
PY
}
# Calls are shared from when both connections are there: on a busy machine the
# first calls may all go to one server. Half a round each, in one of ten rounds.
shared=
for round in $(seq 10); do
  before=("" "$(answered 1)" "$(answered 2)")
  "${bench[@]}" --requests=60 --warmup=0
  first=$(($(answered 1) - before[1])) second=$(($(answered 2) - before[2]))
  echo "round $round: the servers answered $first and $second"
  if [ $first -ge 20 ] && [ $second -ge 20 ]; then
    shared=yes
    break
  fi
done
[ -n "$shared" ]
# What has to reach one server is refused, by name.
if "$attendant" bench --server="$both" --door=striped --shapes=s16h2d64 \
    --requests=1 2> "$work/refused"; then exit 1; fi
grep -q "several servers" "$work/refused"
# One drains in the middle.
"${bench[@]}" --seconds=4 --rate=50 --json="$work/rows.json" &
load=$!
read -rt 1 <> <(:) || true
kill -TERM ${pids[2]}
wait ${pids[2]}
wait $load
python3 - "$work/rows.json" <<'PY'
import json, sys
rows = json.load(open(sys.argv[1]))
rows = rows["rows"] if isinstance(rows, dict) else rows
assert all(row["failed"] == 0 and row["answered"] >= 150 for row in rows), rows
PY
