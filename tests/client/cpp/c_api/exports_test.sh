#!/usr/bin/env bash
# exports_test.sh LIBRARY HEADER: the library exports what the header declares,
# and nothing else.
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '$2 == "T" { print $3 }' |
  sed 's/@.*//' | sort)
declared=$(grep -oE '\battendant_[a-z_]+\(' "$2" | tr -d '(' | sort -u |
  grep -vE '^attendant_(callback)$')
if ! diff <(echo "$declared") <(echo "$exported"); then
  echo "header (<) and library (>) differ" >&2
  exit 1
fi
others=$(nm -D --defined-only "$1" | awk '$2 != "T" && $2 != "A"')
if [ -n "$others" ]; then
  echo "exported beside the functions: $others" >&2
  exit 1
fi
echo "$(echo "$exported" | wc -l) functions, all declared"
