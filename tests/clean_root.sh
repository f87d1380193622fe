#!/usr/bin/env bash
# clean_root.sh SUITE TARGET [PACKAGE...]: a minimal Debian root with these
# packages, as a folder or (NAME.tar) an archive. Needs root and mmdebstrap.
# Packages come from where this machine has its own: its apt sources with the
# suite's name put in; resolver and certificates are this machine's.
set -euo pipefail
suite=$1 target=$2
shift 2
packages=(ca-certificates "$@")
host_suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
sources=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
  'Created-By: Packages' 'Origin: Debian' | sort -u | sed "s/$host_suite/$suite/")
certificates=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
mmdebstrap --quiet --variant=minbase --mode=root \
  --include="$(IFS=,; echo "${packages[*]}")" \
  --aptopt='Acquire::Check-Valid-Until "false"' \
  --customize-hook='copy-in /etc/resolv.conf /etc/hosts /etc' \
  --customize-hook="upload $certificates /etc/ssl/host.crt" \
  "$suite" "$target" - <<<"$sources"
