#!/usr/bin/env bash
# clang_tidy.sh BUILD_DIR [FILE...]: .clang-tidy's checks over these sources, or
# all of them (20 minutes of one core); any finding fails.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
shift
cd "$root"
files=("$@")
if [ ${#files[@]} -eq 0 ]; then
  # Those that this build compiles.
  mapfile -t files < <(python3 - "$build/compile_commands.json" "$root" <<'EOF'
import json, pathlib, sys
root = pathlib.Path(sys.argv[2])
for entry in json.loads(pathlib.Path(sys.argv[1]).read_text()):
    path = pathlib.Path(entry["file"])
    if path.suffix == ".cc" and path.is_relative_to(root):
        path = path.relative_to(root)
        if path.parts[0] in ("kernels", "server", "client"):
            print(path)
EOF
  )
fi
printf '%s\n' "${files[@]}" | xargs -P "${CLANG_TIDY_JOBS:-$(nproc)}" -n 4 \
  clang-tidy --quiet -p "$build" --warnings-as-errors='*' \
  --extra-arg=-Wno-unknown-warning-option
