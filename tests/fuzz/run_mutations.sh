#!/bin/bash
# run_mutations.sh COUNT PROGRAM...: asks each NAME_mutations its seeds and COUNT
# mutations of them. The quick tier's fuzzing.
set -euo pipefail
count=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for program in "$@"; do
  seeds=$folder/$(basename "$program")
  mkdir "$seeds"
  echo "$(basename "$program"):"
  "$program" --seeds "$seeds"
  "$program" "$seeds" "$count"
done
