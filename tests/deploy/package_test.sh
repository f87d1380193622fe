#!/usr/bin/env bash
# package_test.sh BUILD ATTENDANT: makes the .deb and the tarball of a build,
# installs them in a clean root, runs both there, calls them from outside, breaks
# the configuration on purpose, and removes the package. What lies in the package is
# package_files_test.py's matter. Exit code 77, for "skipped", without root or the tools.
set -euo pipefail
build=$(realpath "$1") attendant=$(realpath "$2")
cd "$(dirname "$0")/../.."
for need in mmdebstrap cpack dpkg-shlibdeps dpkg-deb file systemctl unshare; do
  command -v $need >/dev/null || { echo "skipped: no $need"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }

work=$(mktemp -d)
root=$work/root
trap 'jobs -p | xargs -r kill 2>/dev/null; rm -rf --one-file-system "$work"' EXIT
fail() { echo "package_test: $*" >&2; exit 1; }

cpack --config "$build/CPackConfig.cmake" -G "DEB;TGZ" -B "$work/packages" \
  >"$work/cpack.log" ||
  { cat "$work/cpack.log"; exit 1; }
deb=$(ls "$work"/packages/*.deb) tarball=$(ls "$work"/packages/*.tar.gz)
dpkg-deb --info "$deb" | sed -n '/^ Package/,$p'

tests/clean_root.sh "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root"
in_root() {
  unshare --mount --pid --fork --mount-proc="$root/proc" \
    chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin \
    DEBIAN_FRONTEND=noninteractive "$@"
}

# serves PROGRAM: starts it in the root, asks it from outside, stops it.
serves() {
  in_root "$1" --config=/etc/attendant/attendant.conf --listen=127.0.0.1:0 \
    --http=127.0.0.1:0 --lame_duck_seconds=0 --host_pool_bytes=256M \
    --max_queued_bytes=256M >"$work/out" 2>"$work/log" &
  local waiter=$! address pid next
  for _ in $(seq 300); do
    grep -q ' ready: ' "$work/out" && break
    kill -0 $waiter 2>/dev/null || { cat "$work/log"; fail "$1 did not start"; }
    sleep 0.1
  done
  address=$(sed -n 's/.* grpc=\([^ ]*\).*/\1/p' "$work/out")
  "$attendant" check --server="$address" --timeout=120 tests/data/minilm_layer3.safetensors ||
    fail "a wrong answer"
  # The server is the last of the line that unshare begins.
  pid=$waiter
  while next=$(pgrep -P "$pid"); do pid=$next; done
  kill -TERM "$pid"
  wait $waiter || fail "$1 ended with $?"
}

cp "$deb" "$root/tmp/attendant.deb"
in_root apt-get update -qq
in_root apt-get install -y -qq --no-install-recommends /tmp/attendant.deb \
  >"$work/apt.log" 2>&1 ||
  { tail -20 "$work/apt.log"; fail "not installable in a clean root"; }
in_root attendant --help >/dev/null
serves /usr/bin/attendant-server
cmp "$root/usr/lib/systemd/system/attendant.service" deploy/systemd/attendant.service
systemctl --root="$root" enable attendant.service 2>/dev/null || fail "cannot be enabled"
[ -L "$root/etc/systemd/system/multi-user.target.wants/attendant.service" ] ||
  fail "enabled, but not wanted by anything"

mkdir "$root/opt/attendant"
tar -xzf "$tarball" -C "$root/opt/attendant"
serves /opt/attendant/usr/bin/attendant-server

# A check that takes everything is none.
sed -i 's/^drain_/dry_/' "$root/etc/attendant/attendant.conf"
if (serves /usr/bin/attendant-server) >"$work/broken" 2>&1; then
  fail "an unknown flag in the configuration was taken"
fi
grep -q dry_seconds "$work/broken" || { cat "$work/broken"; fail "it failed otherwise"; }

in_root apt-get purge -y -qq attendant >/dev/null 2>&1
for left in usr/bin/attendant-server usr/bin/attendant etc/attendant; do
  [ ! -e "$root/$left" ] || fail "$left is left after purge"
done
printf 'package_test: %s %s bytes, %s %s bytes: passed\n' \
  "$(basename "$deb")" "$(stat -c %s "$deb")" \
  "$(basename "$tarball")" "$(stat -c %s "$tarball")"
