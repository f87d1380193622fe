"""Fails on an #include that points the wrong way between folders.

    client -> proto          server -> proto, kernels
    kernels -> CUDA, Highway and Abseil only
    inside server: its two lower layers and the log look at what is below only
    inside kernels: nothing but attention.* and capabilities.* looks into a
    backend, and backends do not look into each other (sm80, sm90 -> cuda, base)
    *.cuh is included only from *.cu and *.cuh
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = ("proto", "kernels", "server", "client", "tests", "attendant")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
BACKENDS = ("cpu", "sm80", "sm90", "cuda", "reference")
FOREIGN_TO_KERNELS = ("grpc", "google/protobuf", "prometheus", "civetweb")

# folder of the includer -> folders it may include
ALLOWED = {
    "kernels": {"kernels"},
    "server": {"server", "kernels", "attendant"},
    "client": {"client", "attendant", "kernels"},
}

# folder of server/ -> folders of server/ it may include
SERVER_LAYERS = {
    "log": {"log"},
    "request": {"request"},
    "engine": {"engine", "request", "log", "regions"},
}


def server_folder(path):
    """Of a file in a folder of server/; None of any other."""
    parts = pathlib.PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "server" else None


def backend(path):
    parts = pathlib.PurePosixPath(path).parts
    if len(parts) > 2 and parts[0] == "kernels" and parts[1] in BACKENDS:
        return parts[1]
    return None


def problems_of(source, target):
    """Why `source` may not include `target`; both relative to the root."""
    folder = source.split("/")[0]
    target_folder = target.split("/")[0]
    if target.endswith(".cuh") and not source.endswith((".cu", ".cuh")):
        yield "*.cuh is for *.cu and *.cuh only"
    if folder == "kernels" and target.startswith(FOREIGN_TO_KERNELS):
        yield "kernels know CUDA, Highway and Abseil only"
    if target_folder not in OWN or folder not in ALLOWED:
        return
    if target_folder not in ALLOWED[folder]:
        yield f"{folder} must not include {target_folder}"
    if folder == "client" and target_folder == "kernels":
        # The command's `check` compares with the oracle; the library does not.
        if not source.startswith("client/cpp/cli/"):
            yield "only the command looks into kernels (the oracle)"
    layer = server_folder(source)
    if target_folder == "server" and layer in SERVER_LAYERS:
        if server_folder(target) not in SERVER_LAYERS[layer]:
            yield f"server/{layer} must not include {target}"
    own, other = backend(source), backend(target)
    if own and other and own != other and (own, other) not in (
        ("sm80", "cuda"),
        ("sm90", "cuda"),
    ):
        yield f"backend {own} must not include backend {other}"


def main():
    failures = []
    seen = 0
    for folder in ALLOWED:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
                continue
            seen += 1
            source = path.relative_to(ROOT).as_posix()
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if match is None:
                    continue
                for problem in problems_of(source, match.group(1)):
                    failures.append(f"{source}:{number}: {problem}: {line}")
    assert list(problems_of("kernels/cpu/a.cc", "server/b.h")), "checks nothing"
    upwards = problems_of("server/request/a.cc", "server/engine/b.h")
    assert list(upwards), "checks no layers"
    print("\n".join(failures) or f"{seen} files, all includes point the right way")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
