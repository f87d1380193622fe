#!/bin/sh
# Runs a compile command; fails if ptxas says that it serialized wgmma: products
# then no longer overlap with anything. nvcc reports it as mere information.
log=$("$@" 2>&1)
status=$?
[ -z "$log" ] || printf '%s\n' "$log" >&2
case $log in
  *serialized*)
    echo "error: ptxas serialized wgmma (see above)" >&2
    exit 1 ;;
esac
exit $status
