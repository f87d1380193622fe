"""The Python client against a running server, with answers known by hand."""

import asyncio
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import ml_dtypes
import numpy as np
import pytest

import attendant

ROOT = pathlib.Path(__file__).parents[3]
TIMEOUT = 60
NOTHING = -np.inf


@pytest.fixture
def client(target, core):
    """A client on either core."""
    with attendant.Client(target, core=core) as connected:
        yield connected


def count_probe(client, rows, keys, **options):
    """q = 0, V[j] = j + 1: O is the mean place of the visible keys."""
    q = np.zeros((1, rows, 1, 8), np.float32)
    k = np.ones((1, keys, 1, 8), np.float32)
    v = np.arange(1, keys + 1, dtype=np.float32).reshape(1, keys, 1, 1)
    result = client.attend(q, k, v, return_lse=True, timeout=TIMEOUT, **options)
    return result.out.reshape(-1).tolist(), result.lse.reshape(-1)


@pytest.mark.parametrize(
    ("rows", "keys", "options", "expected", "visible"),
    [
        (2, 5, {"causal": True, "alignment": "top_left"}, [1, 1.5], [1, 2]),
        (2, 5, {"causal": True, "alignment": "bottom_right"}, [2.5, 3], [4, 5]),
        (
            5,
            2,
            {"causal": True, "alignment": "top_left"},
            [1, 1.5, 1.5, 1.5, 1.5],
            [1, 2, 2, 2, 2],
        ),
        (
            5,
            2,
            {"causal": True, "alignment": "bottom_right"},
            [0, 0, 0, 1, 1.5],
            [0, 0, 0, 1, 2],
        ),
        (
            5,
            5,
            {"window_left": 1, "window_right": 0},
            [1, 1.5, 2.5, 3.5, 4.5],
            [1, 2, 2, 2, 2],
        ),
        (1, 8, {}, [4.5], [8]),
        (1, 4, {"starts_k": [1], "seqlens_k": [2]}, [2.5], [2]),
        (3, 0, {}, [0, 0, 0], [0, 0, 0]),
    ],
)
def test_count_probe(client, rows, keys, options, expected, visible):
    out, lse = count_probe(client, rows, keys, **options)
    assert out == expected
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(lse, np.log(visible), rtol=1e-6)


def test_every_layout_and_packing_gives_the_same(client):
    random = np.random.default_rng(2)
    q = random.standard_normal((2, 9, 4, 16), np.float32)
    k, v = (random.standard_normal((2, 9, 2, 16), np.float32) for _ in range(2))
    options = {"timeout": TIMEOUT, "causal": True}
    want = client.attend(q, k, v, **options).out
    heads_outside = (0, 2, 1, 3)
    bhsd = client.attend(
        *(np.transpose(x, heads_outside) for x in (q, k, v)), layout="bhsd", **options
    )
    np.testing.assert_array_equal(np.transpose(bhsd.out, heads_outside), want)
    packed = client.attend(
        qkv=np.concatenate([q, k, v], axis=2), num_q_heads=4, num_kv_heads=2, **options
    )
    np.testing.assert_array_equal(packed.out, want)
    flat = (x.reshape(18, -1, 16) for x in (q, k, v))
    thd = client.attend(
        *flat,
        layout="thd",
        cu_seqlens_q=[0, 9, 18],
        cu_seqlens_k=[0, 9, 18],
        return_lse=True,
        **options,
    )
    np.testing.assert_array_equal(thd.out.reshape(want.shape), want)
    assert thd.lse.shape == (4, 18)


def test_masks_of_every_kind_agree(client):
    random = np.random.default_rng(3)
    q, k, v = (random.standard_normal((2, 11, 3, 8), np.float32) for _ in range(3))
    mask = random.random((2, 1, 11, 11)) < 0.5
    mask[0, 0, 4] = False  # a row that sees nothing
    mask[0, 0, :, 3] = False
    additive = np.where(mask, 0, NOTHING).astype(np.float32)
    added = client.attend(q, k, v, mask=additive, timeout=TIMEOUT)
    k[0, 3], v[0, 3] = np.nan, np.inf  # masked: they must not matter
    whole = client.attend(q, k, v, mask=mask, return_lse=True, timeout=TIMEOUT)
    bits = client.attend(q, k, v, mask=mask, mask_bits=True, timeout=TIMEOUT)
    assert np.isfinite(whole.out).all()
    assert (whole.out[0, 4] == 0).all() and (whole.lse[0, :, 4] == NOTHING).all()
    np.testing.assert_array_equal(whole.out, bits.out)
    np.testing.assert_allclose(whole.out, added.out, rtol=1e-6, atol=1e-6)


def test_sixteen_bit_inputs(client):
    random = np.random.default_rng(4)
    q, k, v = (random.standard_normal((1, 33, 2, 40), np.float32) for _ in range(3))
    for dtype, tolerance in ((np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)):
        rounded = [x.astype(dtype) for x in (q, k, v)]
        wide = [x.astype(np.float32) for x in rounded]
        got = client.attend(*rounded, timeout=TIMEOUT)
        assert got.out.dtype == dtype
        s = np.einsum("bihd,bjhd->bhij", wide[0], wide[1]) / np.sqrt(40)
        p = np.exp(s - s.max(-1, keepdims=True))
        want = np.einsum("bhij,bjhd->bihd", p / p.sum(-1, keepdims=True), wide[2])
        np.testing.assert_allclose(got.out.astype(np.float32), want, atol=tolerance)


def test_merged_shards_with_one_sink_are_the_whole(client):
    random = np.random.default_rng(5)
    q = random.standard_normal((1, 3, 4, 16), np.float32)
    k, v = (random.standard_normal((1, 200, 2, 16), np.float32) for _ in range(2))
    sinks = [0.5, -1.0, 0.0, 2.0]
    whole = client.attend(q, k, v, sinks=sinks, return_lse=True, timeout=TIMEOUT)
    parts = [
        client.attend(q, k[:, s], v[:, s], return_lse=True, timeout=TIMEOUT)
        for s in (slice(0, 130), slice(130, 130), slice(130, 200))
    ]
    out, lse = attendant.merge_partials([(p.out, p.lse) for p in parts])
    np.testing.assert_allclose(lse, whole.lse, atol=1e-5)
    scaled = attendant.apply_sinks(out, lse, sinks)
    np.testing.assert_allclose(scaled, whole.out, atol=1e-5)


def test_refused_requests_name_field_value_and_bound(client):
    x = np.zeros((1, 2, 1, 257), np.float32)
    with pytest.raises(attendant.AttendantError) as caught:
        client.attend(x, x, x, timeout=TIMEOUT)
    assert caught.value.code.name == "INVALID_ARGUMENT"
    assert caught.value.field.startswith("q.shape")
    assert "257" in caught.value.value
    assert "256" in caught.value.bound
    with pytest.raises(attendant.AttendantError) as caught:
        count_probe(client, 2, 5, causal=True)
    assert caught.value.field == "alignment"
    with pytest.raises(attendant.AttendantError, match="UNIMPLEMENTED"):
        count_probe(client, 2, 2, dropout_p=0.1)
    assert count_probe(client, 1, 3)[0] == [2]


def test_many_tasks_at_once(target, core):
    async def run():
        async with attendant.AsyncClient(target, core=core) as client:

            async def ask(keys):
                q = np.zeros((1, 1, 1, 8), np.float32)
                k = np.ones((1, keys, 1, 8), np.float32)
                v = np.full((1, keys, 1, 1), keys, np.float32)
                return (await client.attend(q, k, v, timeout=TIMEOUT)).out.item()

            return await asyncio.gather(*(ask(keys) for keys in range(1, 40)))

    np.testing.assert_allclose(asyncio.run(run()), range(1, 40), rtol=1e-6)


def test_a_prepared_call_is_made_often(client):
    random = np.random.default_rng(6)
    q, k, v = random.standard_normal((3, 2, 9, 4, 16), np.float32)
    options = {"causal": True, "return_lse": True}
    prepared = client.prepare(q.copy(), k, v, **options)
    for scale in (1.0, 0.5):
        prepared.q[...] = q * scale
        result = prepared.attend(timeout=TIMEOUT)
        want = client.attend(q * scale, k, v, timeout=TIMEOUT, **options)
        np.testing.assert_array_equal(prepared.out, want.out)
        np.testing.assert_array_equal(prepared.lse, want.lse)
        assert result.out is prepared.out
    half = client.prepare(*(x.astype(ml_dtypes.bfloat16) for x in (q, k, v)))
    assert half.attend(timeout=TIMEOUT).out.dtype == ml_dtypes.bfloat16
    with pytest.raises(attendant.AttendantError):
        client.prepare(q, k[:, :, :3], v[:, :, :3]).attend(timeout=TIMEOUT)


def test_stage_times_add_up(client):
    x = np.ones((1, 64, 2, 32), np.float32)
    stages = client.attend(x, x, x, timeout=TIMEOUT).stages
    parts = (
        stages.receive_ns
        + stages.queue_ns
        + stages.upload_ns
        + stages.kernel_ns
        + stages.download_ns
        + stages.send_ns
    )
    assert parts == stages.total_ns > 0


def test_server_info(client):
    info = client.get_server_info(timeout=TIMEOUT)
    assert info.version == (ROOT / "VERSION").read_text().strip()
    assert info.bounds["max_head_dim"] == 256
    assert info.bounds["max_streams"] > 0
    assert {row.kernel for row in info.capabilities} >= {"cpu"}
    assert info.devices


@pytest.mark.parametrize(
    ("example", "says"),
    [
        ("attend_once.py", "served by"),
        ("numpy_five_lines.py", "(2, 100, 8, 64) by"),
        ("asyncio_fan_out.py", "64 answers in"),
        ("latency_plot.py", "drawn in"),
    ],
)
def test_the_examples_run(example, says, target, core, tmp_path):
    environment = dict(os.environ)
    if core == "grpcio":
        environment["ATTENDANT_CLIENT_LIBRARY"] = "/nowhere"
    done = subprocess.run(
        [sys.executable, ROOT / "client" / "python" / "examples" / example, target],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    for drawing in tmp_path.glob("*.svg"):
        assert xml.etree.ElementTree.parse(drawing).getroot().tag.endswith("svg")
