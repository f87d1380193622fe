#!/usr/bin/env bash
# collect.sh BUILD TARGET: the least root that the server and the command run in:
# both programs, the libraries they name, a user, certificates, a cache folder.
set -euo pipefail
build=$1 target=$2
mkdir -p "$target"/{usr/bin,etc/ssl/certs,cache,tmp}
chmod 1777 "$target/tmp"
chown 1000:1000 "$target/cache"
programs=("$build/server/attendant-server" "$build/client/cpp/attendant")
for program in "${programs[@]}"; do
  install -s -m 755 "$program" "$target/usr/bin/"
done
# Below /usr/lib, where a merged /lib points to: links and what they point to.
ln -s usr/lib "$target/lib"
ln -s usr/lib64 "$target/lib64"
mkdir -p "$target/usr/lib64"
libc=$(ldd "${programs[0]}" | grep -oE '/[^ ]+/libc\.so\.6')
# The driver's libcuda.so.1 asks for three that glibc has since put into libc: without
# them a container with a GPU finds none.
{
  ldd "${programs[@]}" | grep -oE '/[^ ]+\.so[^ ]*'
  printf "$(dirname "$libc")/%s\n" libdl.so.2 libpthread.so.0 librt.so.1
} | sort -u |
  while read -r library; do
    install -D -m 755 "$(realpath "$library")" \
      "$target/$(realpath "$(dirname "$library")")/$(basename "$library")"
  done
loader=$(ldd "${programs[0]}" | grep -oE '/lib64/ld[^ ]+')
install -D -m 755 "$(realpath "$loader")" "$target/usr/lib64/$(basename "$loader")"
# Names of users and hosts need no further library than libc since glibc 2.34.
echo 'attendant:x:1000:1000::/:/nonexistent' >"$target/etc/passwd"
echo 'attendant:x:1000:' >"$target/etc/group"
echo 'hosts: files dns' >"$target/etc/nsswitch.conf"
cp /etc/ssl/certs/ca-certificates.crt "$target/etc/ssl/certs/"
