"""The attendant command, with files as numpy and safetensors write them."""

import json
import os
import subprocess

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fake_server import echo_q

COMMAND = os.environ.get("ATTENDANT_COMMAND", "")
pytestmark = pytest.mark.skipif(
    not os.path.exists(COMMAND), reason=f"no command at ATTENDANT_COMMAND={COMMAND!r}"
)
SHAPE = (1, 6, 2, 4)


def run(*arguments):
    """The command's exit code, stdout and stderr."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def tensors(dtype):
    """q, k and v, all different."""
    random = np.random.default_rng(1)
    return {name: random.standard_normal(SHAPE).astype(dtype) for name in "qkv"}


def save_npz(path, arrays):
    np.savez(path, **arrays)


def save_packed_npz(path, arrays):
    np.savez_compressed(path, **arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("save", [save_npz, save_packed_npz])
def test_reads_npz(fake, tmp_path, dtype, save):
    arrays = tensors(dtype)
    save(tmp_path / "in.npz", arrays)
    out = tmp_path / "out.npz"
    code, _, error = run(
        "attend", "--server", fake(echo_q).target, tmp_path / "in.npz", "--out", out
    )
    assert code == 0, error
    np.testing.assert_array_equal(np.load(out)["out"], arrays["q"])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_reads_and_writes_safetensors(fake, tmp_path, dtype):
    arrays = tensors(dtype)
    save_file(arrays, tmp_path / "in.safetensors", metadata={"made": "by a test"})
    out = tmp_path / "out.safetensors"
    code, _, error = run(
        "attend",
        "--server",
        fake(echo_q).target,
        tmp_path / "in.safetensors",
        "--out",
        out,
    )
    assert code == 0, error
    written = load_file(out)["out"]
    assert written.dtype == dtype
    np.testing.assert_array_equal(written, arrays["q"])


def test_reads_npy_and_uint16_as_bf16(fake, tmp_path):
    arrays = tensors(ml_dtypes.bfloat16)
    flags = []
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array.view(np.uint16))
        flags.append(f"--{name}={tmp_path / name}.npy")
    target = fake(echo_q).target
    assert run("attend", "--server", target, *flags)[0] == 2  # what holds it?
    out = tmp_path / "out.safetensors"
    code, _, error = run(
        "attend", "--server", target, *flags, "--dtype=bf16", "--out", out
    )
    assert code == 0, error
    np.testing.assert_array_equal(load_file(out)["out"], arrays["q"])
    np.save(tmp_path / "q.npy", arrays["q"])  # numpy calls it |V2
    assert run("attend", "--server", target, *flags, "--dtype=bf16")[0] == 0


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.asfortranarray(np.ones(SHAPE, np.float32)), "Fortran"),
        (np.ones(SHAPE), "float64"),
        (np.ones(SHAPE, ">f4"), ">f4"),
        (np.ones(SHAPE, np.complex64), "<c8"),
    ],
)
def test_says_what_it_cannot_read(tmp_path, array, word):
    np.save(tmp_path / "q.npy", array)
    code, _, error = run("attend", f"--q={tmp_path}/q.npy")
    assert code == 2
    assert word in error


def test_sends_what_the_flags_say(fake, tmp_path):
    seen = []

    def answer(request, context):
        seen.append(request)
        return echo_q(request, context)

    arrays = tensors(np.float32) | {
        "sinks": np.array([1, 2], np.float32),
        "seqlens_k": np.array([5]),
        "mask": np.eye(6, dtype=bool).reshape(1, 1, 6, 6),
    }
    np.savez(tmp_path / "in.npz", **arrays)
    code, text, error = run(
        "attend",
        f"--server={fake(answer).target}",
        tmp_path / "in.npz",
        "--causal",
        "--alignment=top_left",
        "--window-left=0",
        "--scale=0",
        "--alibi-slopes=0.5,0.25",
        "--mask-bits",
        "--request-id=abc",
        "--priority=-7",
        "--json",
    )
    assert code == 0, error
    request = seen[0]
    assert list(request.sinks) == [1, 2]
    assert list(request.seqlens_k) == [5]
    assert list(request.alibi_slopes) == [0.5, 0.25]
    assert request.mask_data == bytes(1 << row for row in range(6))
    assert request.causal and request.alignment == 1
    assert request.HasField("window_left") and request.HasField("softmax_scale")
    assert request.priority == -7
    assert json.loads(text)["request_id"] == "abc"
