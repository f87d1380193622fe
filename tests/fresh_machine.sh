#!/usr/bin/env bash
# fresh_machine.sh [--ccache DIR] [--results DIR] [SUITE...]: the README's two
# commands (deploy/quickstart.sh, tests/run.sh), as they stand there, on machines
# that have nothing: clean roots of Debian 12 and 13 (bookworm, trixie) with git and
# nothing more, into which the committed project is cloned. Needs root, mmdebstrap
# and about 6 GB. SUITE "here" is this machine as it is, with its CUDA toolkit for
# example, and a fresh clone.
#
# --ccache: a compiler cache, for developing (then it is no fresh machine, and
# the result says so, as it does of jobs and the machine's load). --results: where
# fresh_SUITE.log and fresh_machine.json go, which keeps what it holds of other
# suites.
# Packages come from where this machine has its own (clean_root.sh), those of
# Python too: PIP_* and *_proxy are handed in.
set -euo pipefail
cd "$(dirname "$0")/.."
ccache= results=
while [ $# -gt 0 ]; do
  case "$1" in
    --ccache) ccache=$(realpath "$2"); shift 2 ;;
    --results) results=$(realpath "$2"); shift 2 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || set -- bookworm trixie
for need in mmdebstrap unshare git apt-get; do
  command -v $need >/dev/null || { echo "skipped: no $need"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
results=${results:-$work}
commit=$(git rev-parse HEAD)
mapfile -t commands < <(sed -n \
  '/^## Two commands/,/^The first/s/^\([a-z/_.]*\.sh\) *#.*/\1/p' README.md)
if [ ${#commands[@]} != 2 ]; then
  echo "fresh_machine: the README's two commands are not found" >&2
  exit 1
fi

# in_root ROOT COMMAND...: as on a machine of its own, but for the network.
in_root() {
  local root=$1 keep=()
  shift
  mapfile -t keep < <(
    env | grep -E '^(PIP_|[a-z]+_proxy=|CMAKE_BUILD_PARALLEL)' || true)
  if [ "$root" = / ]; then
    env -i "${keep[@]}" HOME="$HOME" LANG=C.UTF-8 \
      PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin ${ccache:+CCACHE_DIR=$ccache \
      CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache} "$@"
    return
  fi
  unshare --mount --pid --fork --mount-proc="$root/proc" bash -c '
    root=$1 ccache=$2; shift 2
    mount --rbind /dev "$root/dev"
    if [ -n "$ccache" ]; then mount --bind "$ccache" "$root/var/ccache"; fi
    exec chroot "$root" env -i "$@"' _ "$root" "$ccache" "${keep[@]}" \
    HOME=/root LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
    SSL_CERT_FILE=/etc/ssl/host.crt ${PIP_CERT:+PIP_CERT=/etc/ssl/host.crt} \
    ${ccache:+CCACHE_DIR=/var/ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache} "$@"
}

make_root() {  # SUITE ROOT
  if [ "$1" = here ]; then
    git clone -q "$(git rev-parse --show-toplevel)" "$clone"
    git -C "$clone" checkout -q "$commit"
    return
  fi
  tests/clean_root.sh "$1" "$2" git ${ccache:+ccache}
  mkdir -p "$2/var/ccache"
  git clone -q --bare "$(git rev-parse --path-format=absolute --git-common-dir)" \
    "$2/srv/attendant.git"
  in_root "$2" git -c safe.directory='*' clone -q /srv/attendant.git /root/attendant
  in_root "$2" git -C /root/attendant checkout -q "$commit"
}

# What a reader of the log wants to know, in a few lines.
summary() {
  sed -n '/^## /p; /^build: /p; /^setup: /p; /tests passed/p; /Failed/p
    /^The following tests/p; /Skipped/p; /^check: /p; /within/p; /== Drained/p' "$1" |
    cut -c1-160
}

# The record: a row a command, written as soon as it has ended. Rows of other
# suites, and of runs with a compiler cache beside runs without, stay; each has
# its own commit.
record() {  # SUITE COMMAND EXIT_CODE SECONDS
  local file=$results/fresh_machine.json rows=() cached
  cached=$([ -n "$ccache" ] && echo true || echo false)
  [ ! -f "$file" ] || mapfile -t rows < <(
    sed -n 's/,$//; s/^  {/{/p' "$file" | grep -v \
      "\"suite\": \"$1\", \"command\": \"$2\".*\"compiler_cache\": $cached" || true)
  rows+=("$(printf '{"suite": "%s", "command": "%s", "exit_code": %s, ' \
    "$1" "$2" "$3")$(printf '"seconds": %s, "date": "%s", "commit": "%s", ' \
    "$4" "$(date -u +%F)" "$commit")$(printf '"cores": %s, "jobs": "%s", ' \
    "$(nproc)" "${CMAKE_BUILD_PARALLEL_LEVEL:-all}")$(printf \
    '"load": %s, "compiler_cache": %s}' "$(cut -d' ' -f3 /proc/loadavg)" "$cached")")
  {
    printf '{"command": "tests/fresh_machine.sh", "runs": [\n'
    printf '  %s\n' "${rows[@]}" | sed '$!s/$/,/'
    printf ' ]}\n'
  } >"$file.new"
  mv "$file.new" "$file"
}

failed=0
for suite in "$@"; do
  root=$work/$suite-root clone=/root/attendant log=$results/fresh_$suite.log
  if [ "$suite" = here ]; then root=/ clone=$work/attendant; fi
  echo "fresh machine: $suite"
  make_root "$suite" "$root"
  . <(grep -E '^(PRETTY_NAME|VERSION_CODENAME)=' "$root/etc/os-release")
  if [ "$suite" = here ]; then
    PRETTY_NAME="$PRETTY_NAME as it is"
    suite=$VERSION_CODENAME nvcc=${CUDA_PATH:-/usr/local/cuda}/bin/nvcc
    if [ -x "$nvcc" ]; then
      PRETTY_NAME+=", nvcc $("$nvcc" --version | sed -n 's/.* V//p')"
      suite+=" with nvcc"
    fi
  fi
  printf '## %s, commit %s, %s\n' "$PRETTY_NAME" "$commit" "$(date -u +%F)" >"$log"
  for command in "${commands[@]}"; do
    printf '## %s\n' "$command" >>"$log"
    start=$SECONDS code=0
    in_root "$root" bash -c "cd '$clone' && $command" >>"$log" 2>&1 || code=$?
    seconds=$((SECONDS - start))
    printf '## exit code %s after %s s\n' "$code" "$seconds" >>"$log"
    record "$suite" "$command" $code $seconds
    if [ "$code" != 0 ]; then
      failed=1
      tail -40 "$log"
    fi
  done
  summary "$log"
  [ "$root" = / ] || rm -rf --one-file-system "$root"
done
cat "$results/fresh_machine.json"
exit $failed
