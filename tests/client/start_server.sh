# To be sourced. start_server SERVER WORK FLAG...: starts the server in the
# background, waits until it is ready and leaves its address in $grpc. The server
# and the folder WORK go when the script ends.
start_server() {
  local server=$1
  work=$2
  shift 2
  "$server" --listen=127.0.0.1:0 --http= --lame_duck_seconds=0 \
    --host_pool_bytes=128M --max_queued_bytes=128M \
    --region_socket="$work/regions" "$@" > "$work/start" 2> "$work/log" &
  pid=$!
  trap 'kill $pid 2>/dev/null || true; rm -rf "$work"' EXIT
  until grep -q ' ready: ' "$work/start"; do
    kill -0 $pid || { cat "$work/log"; exit 1; }
    read -rt 0.1 <> <(:) || true
  done
  grpc=$(sed -E 's/.* grpc=([^ ]+) .*/\1/' "$work/start")
}
