#!/usr/bin/env bash
# doors_tls.sh SERVER ATTENDANT: what the door auto asks before a call it asks as
# the call does, by TLS and with its token: so it finds shared memory where a
# policy lets nobody else ask, and the server sees no plaintext.
set -euo pipefail
server=$1 attendant=$2
work=$(mktemp -d)
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
  -keyout "$work/key" -out "$work/cert" 2> "$work/openssl"
echo secret > "$work/token"
printf '{"identities": [{"name": "a", "methods": ["*"], "token_sha256": "%s"}]}' \
  "$(printf secret | sha256sum | cut -d' ' -f1)" > "$work/policy"
"$server" --listen=127.0.0.1:0 --http= --lame_duck_seconds=0 \
  --host_pool_bytes=128M --max_queued_bytes=128M \
  --region_socket="$work/regions" --tls_cert="$work/cert" \
  --tls_key="$work/key" --policy="$work/policy" \
  > "$work/start" 2> "$work/log" &
pid=$!
trap 'kill $pid 2>/dev/null || true; rm -rf "$work"' EXIT
until grep -q ' ready: ' "$work/start"; do
  kill -0 $pid || { cat "$work/log"; exit 1; }
  read -rt 0.1 <> <(:) || true
done
grpc=$(sed -E 's/.* grpc=([^ ]+) .*/\1/' "$work/start")
with=(--server="$grpc" --tls --ca="$work/cert" --token-file="$work/token")
"$attendant" attend "${with[@]}" --random=1,8,8,1,1,8 > "$work/out"
"$attendant" bench "${with[@]}" --shapes=s8h1d8 --requests=2 --warmup=0 \
  --json="$work/rows.json" > "$work/out"
grep -q '"door": "shm"' "$work/rows.json" || { cat "$work/out"; exit 1; }
# The log is whole once the process has ended.
kill $pid && wait $pid
if grep -E 'Handshake|"audit":true' "$work/log"; then exit 1; fi
echo "shared memory was found by TLS and token"
