#!/usr/bin/env bash
# setup.sh [--tests|--long] [--cuda]: installs what building and running Attendant
# needs, with --tests what testing it needs, with --long what its long tests need,
# too. Where there is a GPU but no CUDA compiler, or with --cuda, it installs
# CUDA's compiler from PyPI into .cuda, for this project alone. Debian 12 or 13;
# does nothing where everything is there already. DEPENDENCIES.md says why each is there.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build pkg-config ca-certificates curl
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
  libabsl-dev libssl-dev libhwy-dev prometheus-cpp-dev libcivetweb-dev
  nlohmann-json3-dev zlib1g-dev)
tests= long= cuda=
for argument in "$@"; do
  case "$argument" in
    --long) tests=1 long=1 ;;
    --tests) tests=1 ;;
    --cuda) cuda=1 ;;
    *) echo "setup: '$argument' is not --tests, --long or --cuda" >&2; exit 2 ;;
  esac
done
has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }
has_nvcc() {
  command -v nvcc >/dev/null || [ -x "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" ]
}
if ! has_nvcc && has_gpu; then cuda=1; fi
if has_nvcc; then cuda=; fi
if [ -n "$cuda" ]; then packages+=(python3 python3-venv); fi
if [ -n "$tests" ]; then
  packages+=(libgtest-dev libgmock-dev openssl python3 python3-venv prometheus haproxy
    ruby ruby-grpc ruby-grpc-tools git zsh dpkg-dev file)
fi
if [ -n "$long" ]; then
  # A browser; clean roots, containers without a daemon, packages; 64-bit Arm.
  packages+=(chromium mmdebstrap buildah runc
    g++-aarch64-linux-gnu qemu-user)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null |
    grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "setup: no apt-get here; please install: ${missing[*]}" >&2
    exit 1
  fi
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  echo "setup: installing ${missing[*]}"
  "${root[@]}" apt-get update -qq
  # Prometheus is for the tests to start, not a service of this machine.
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# python_packages FILE: into .venv, once for each content of the file.
python_packages() {
  local stamp
  stamp=.venv/$(basename "$1" .txt).stamp
  cmp -s "$1" "$stamp" && return
  echo "setup: Python packages of $1"
  .venv/bin/pip install -q --disable-pip-version-check -r "$1"
  cp "$1" "$stamp"
}
if [ -n "$tests" ]; then
  if [ ! -x .venv/bin/python ]; then python3 -m venv .venv; fi
  python_packages tests/requirements.txt
fi
if [ -n "$long" ]; then python_packages tests/requirements-long.txt; fi

# The parts of the toolkit that compile, at the versions the kernels were
# measured with; cudart is linked statically.
if [ -n "$cuda" ] && [ ! -x .cuda/toolkit/bin/nvcc ]; then
  echo "setup: CUDA 13.0 compiler into .cuda"
  if ! { python3 -m venv .cuda &&
         .cuda/bin/pip install -q --disable-pip-version-check \
           nvidia-cuda-{nvcc,crt,cccl,runtime}==13.0.* nvidia-nvvm==13.0.*; }; then
    echo "setup: no CUDA compiler: install the CUDA 13.0 toolkit and run this" \
      "again for GPU kernels; going on without them" >&2
  else
    (cd .cuda && ln -sfn lib/python3*/site-packages/nvidia/cu13 toolkit)
    # Where CMake looks; what is linked is libcudart_static.a.
    ln -sfn lib .cuda/toolkit/lib64
    ln -sfn libcudart.so.13 .cuda/toolkit/lib/libcudart.so
  fi
fi
