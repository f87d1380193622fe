#!/usr/bin/env bash
# quickstart.sh [--keep] [--built]: sets up, builds, starts a server, runs a real
# attention job through the RPC, shows its answer checked against the oracle and
# what Prometheus would scrape, and stops. --keep leaves the server running
# (until Ctrl-C); --built takes what is in build/ (made elsewhere, for example)
# and sets up and builds nothing. Uses a GPU where there is one.
set -euo pipefail
cd "$(dirname "$0")/.."
keep=
built=
for argument in "$@"; do
  case "$argument" in
    --keep) keep=1 ;;
    --built) built=1 ;;
    *) echo "quickstart: $argument is not --keep or --built" >&2 && exit 2 ;;
  esac
done

if [ -z "$built" ]; then
  deploy/setup.sh
  ATTENDANT_CMAKE_ARGS="-DATTENDANT_TESTS=OFF ${ATTENDANT_CMAKE_ARGS:-}" \
    deploy/build.sh attendant-server attendant
fi

work=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill -TERM "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

echo
echo "== The server"
build/server/attendant-server --listen=127.0.0.1:0 --http=127.0.0.1:0 \
  --lame_duck_seconds=0 >"$work/out" 2>"$work/log" &
server=$!
for _ in $(seq 600); do
  grep -q ' ready: ' "$work/out" && break
  if ! kill -0 "$server" 2>/dev/null; then
    cat "$work/log" >&2
    echo "quickstart: the server did not start" >&2
    exit 1
  fi
  sleep 0.1
done
grep -hE 'computing on|^attendant-server' "$work/log" "$work/out"
grpc=$(sed -n 's/.* grpc=\([^ ]*\).*/\1/p' "$work/out")
http=$(sed -n 's/.* http=\([^ ]*\).*/\1/p' "$work/out")

echo
echo "== A real job: attention of a text encoder over a licence text, checked"
build/client/cpp/attendant check --server="$grpc" \
  tests/data/minilm_layer3.safetensors

echo
echo "== What Prometheus scrapes at http://$http/metrics (excerpt)"
curl -sf "http://$http/metrics" |
  grep -E '^attendant_(requests_(started|finished)_total|requests_in_flight|stage_duration_seconds_(sum|count)|request_duration_seconds_(sum|count)|build_info)' |
  grep -v ' 0$' | head -24

if [ -n "$keep" ]; then
  echo
  echo "== Serving until Ctrl-C; for example:"
  echo "   build/client/cpp/attendant info --server=$grpc"
  trap 'kill -TERM $server' INT TERM
  wait "$server" || true
  server=
  exit 0
fi
echo
kill -TERM "$server"
if wait "$server"; then
  server=
  echo "== Drained and stopped. More: tests/run.sh, build/client/cpp/attendant --help"
else
  echo "quickstart: the server ended with exit code $?" >&2
  exit 1
fi
