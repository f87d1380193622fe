#!/usr/bin/env bash
# doors_tls.sh SERVER ATTENDANT: what the door auto asks before a call it asks as
# the call does, by TLS and with its token: so it finds shared memory where a
# policy lets nobody else ask, and the server sees no plaintext.
set -euo pipefail
. "$(dirname "$0")/start_server.sh"
server=$1 attendant=$2
work=$(mktemp -d)
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
  -keyout "$work/key" -out "$work/cert" 2> "$work/openssl"
echo secret > "$work/token"
printf '{"identities": [{"name": "a", "methods": ["*"], "token_sha256": "%s"}]}' \
  "$(printf secret | sha256sum | cut -d' ' -f1)" > "$work/policy"
start_server "$server" "$work" --tls_cert="$work/cert" \
  --tls_key="$work/key" --policy="$work/policy"
with=(--server="$grpc" --tls --ca="$work/cert" --token-file="$work/token")
"$attendant" attend "${with[@]}" --random=1,8,8,1,1,8 > "$work/out"
"$attendant" bench "${with[@]}" --shapes=s8h1d8 --requests=2 --warmup=0 \
  --json="$work/rows.json" > "$work/out"
grep -q '"door": "shm"' "$work/rows.json" || { cat "$work/out"; exit 1; }
# The log is whole once the process has ended.
kill $pid && wait $pid
if grep -E 'Handshake|"audit":true' "$work/log"; then exit 1; fi
echo "shared memory was found by TLS and token"
