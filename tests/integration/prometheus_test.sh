#!/bin/bash
# A real Prometheus scrapes a real server while a load runs.
#   prometheus_test.sh ATTENDANT_SERVER INTEGRATION_LOAD
# Needs Debian's prometheus package (prometheus, promtool), curl and python3.
set -euo pipefail
server=$1
load=$2
requests=${ATTENDANT_LOAD_REQUESTS:-2000}
for tool in prometheus promtool curl python3; do
  command -v "$tool" >/dev/null || { echo "needs $tool"; exit 1; }
done

work=$(mktemp -d)
touch "$work/start"
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap finish EXIT

# wait_for SECONDS COMMAND...: until it succeeds
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "FAIL: timed out: $*"; return 1; }
    sleep 0.1
  done
}

"$server" --listen=127.0.0.1:0 --http=127.0.0.1:0 --backend=cpu \
  --cpu_threads=2 --host_pool_bytes=256M \
  --lame_duck_seconds=0 --log_level=warning >"$work/start" &
server_pid=$!
pids+=("$server_pid")
wait_for 20 grep -q ' ready: ' "$work/start"
grpc=$(grep -o 'grpc=[^ ]*' "$work/start" | cut -d= -f2)
http=$(grep -o 'http=[^ ]*' "$work/start" | cut -d= -f2)
[ "$(curl -s "http://$http/readyz")" = ok ]
[ "$(curl -s "http://$http/healthz")" = ok ]

cat >"$work/prometheus.yml" <<CONFIG
global: {scrape_interval: 250ms}
scrape_configs:
  - job_name: attendant
    static_configs: [{targets: ["$http"]}]
CONFIG
promtool check config "$work/prometheus.yml" >"$work/config-check"
# It says which port it was given.
prometheus --config.file="$work/prometheus.yml" \
  --storage.tsdb.path="$work/tsdb" --web.listen-address="127.0.0.1:0" \
  2>"$work/prometheus.log" &
pids+=($!)
listening='msg="Listening on".* address=127\.0\.0\.1:[0-9]+'
wait_for 30 grep -qE "$listening" "$work/prometheus.log"
port=$(grep -oE "$listening" "$work/prometheus.log" | grep -oE '[0-9]+$')

# query PROMQL: the value of the only sample, or nothing
query() {
  curl -s --data-urlencode "query=$1" "http://127.0.0.1:$port/api/v1/query" |
    python3 -c 'import json, sys
try:
  result = json.load(sys.stdin)["data"]["result"]
  print(result[0]["value"][1] if len(result) == 1 else "")
except Exception:
  print("")'
}
is() { [ "$(query "$1")" = "$2" ]; }
positive() {
  python3 -c 'import sys; v = float(sys.argv[1] or "nan")
sys.exit(not 0 < v < float("inf"))' "$(query "$1")"
}
wait_for 30 is 'up{job="attendant"}' 1

"$load" "$grpc" "$requests" 8 >"$work/tally" &
load_pid=$!
for stage in receive queue kernel; do
  rate="rate(attendant_stage_duration_seconds_bucket{stage=\"$stage\"}[5m])"
  p50="histogram_quantile(0.5, sum by (le) ($rate))"
  wait_for 30 positive "$p50"
  echo "p50 of $stage: $(query "$p50") s"
done
# promtool says nothing, and says it with success.
curl -s "http://$http/metrics" >"$work/metrics"
promtool check metrics <"$work/metrics" >"$work/promtool" 2>&1
[ ! -s "$work/promtool" ] || { cat "$work/promtool"; exit 1; }
wait "$load_pid" || { echo "FAIL: a wrong answer"; cat "$work/tally"; exit 1; }

tally() { python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/tally" "$1"; }
attend='method="Attend"'
wait_for 10 is "attendant_requests_started_total{$attend}" "$(tally begun)"
is "attendant_requests_finished_total{$attend,code=\"OK\"}" "$(tally ok)"
is "attendant_requests_finished_total{$attend,code=\"INVALID_ARGUMENT\"}" \
  "$(tally invalid)"
is "attendant_request_duration_seconds_count" "$(tally ok)"
# At no scrape was a call in two places, or in none.
is "max_over_time(abs(sum(attendant_requests_started_total) \
  - sum(attendant_requests_finished_total) \
  - sum(attendant_requests_in_flight))[2m:250ms])" 0
kill -TERM "$server_pid"
code=0
wait "$server_pid" || code=$?
[ "$(tally invalid)" -gt 0 ]
[ $code = 0 ] || { echo "FAIL: the server ended with $code"; exit 1; }
echo "PASS: $(cat "$work/tally")"
