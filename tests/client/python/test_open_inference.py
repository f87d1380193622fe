"""An unmodified Open Inference client (tritonclient) against the server."""

import queue

import numpy as np
import pytest

import attendant

tritonclient = pytest.importorskip("tritonclient.grpc")
from tritonclient.utils import InferenceServerException  # noqa: E402


@pytest.fixture
def client(target):
    """Connected to the real server."""
    with tritonclient.InferenceServerClient(target) as connected:
        yield connected


def tensors(dtype=np.float16, shape=(2, 70, 4, 64), kv_heads=2, seed=0):
    """q, k and v of random normal values."""
    random = np.random.default_rng(seed)
    kv_shape = (*shape[:-2], kv_heads, shape[-1])
    return [
        random.standard_normal(size).astype(dtype)
        for size in (shape, kv_shape, kv_shape)
    ]


def inputs(arrays, datatype="FP16", **more):
    """InferInputs with raw contents."""
    named = {**dict(zip("qkv", arrays)), **more}
    datatypes = {"int32": "INT32", "int64": "INT64", "float32": "FP32", "bool": "BOOL"}
    result = []
    for name, array in named.items():
        kind = datatype if name in "qkv" else datatypes[str(array.dtype)]
        entry = tritonclient.InferInput(name, array.shape, kind)
        entry.set_data_from_numpy(array)
        result.append(entry)
    return result


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("attention")
    assert client.is_model_ready("attention", "1")
    assert not client.is_model_ready("llama")
    assert client.get_server_metadata().name == "attendant-server"
    model = client.get_model_metadata("attention")
    assert [tensor.name for tensor in model.inputs][:3] == ["q", "k", "v"]
    assert [tensor.name for tensor in model.outputs] == ["output", "lse"]
    with pytest.raises(InferenceServerException) as caught:
        client.get_model_metadata("llama")
    assert caught.value.status() == "StatusCode.NOT_FOUND"


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        ({}, {}),
        ({"causal": True}, {"causal": True}),
        (
            {"causal": True, "window_left": 9, "softmax_scale": "0.3"},
            {"causal": True, "window_left": 9, "softmax_scale": 0.3},
        ),
        ({"softcap": "5.0"}, {"softcap": 5.0}),
    ],
)
def test_answers_are_bitwise_those_of_attend(client, target, parameters, options):
    q, k, v = tensors()
    with attendant.Client(target) as native:
        expected = native.attend(q, k, v, timeout=60, return_lse=True, **options)
    result = client.infer(
        "attention",
        inputs((q, k, v)),
        parameters={**parameters, "return_lse": True},
        request_id="bitwise",
    )
    assert result.get_response().id == "bitwise"
    assert result.as_numpy("output").tobytes() == expected.out.tobytes()
    assert result.as_numpy("lse").tobytes() == expected.lse.tobytes()


def test_packed_sequences_and_key_lengths(client, target):
    q, k, v = tensors(shape=(90, 4, 64))
    starts = np.array([0, 30, 90], np.int32)
    with attendant.Client(target) as native:
        expected = native.attend(
            q,
            k,
            v,
            timeout=60,
            layout="thd",
            cu_seqlens_q=starts,
            cu_seqlens_k=starts,
        )
    result = client.infer(
        "attention",
        inputs((q, k, v), cu_seqlens_q=starts, cu_seqlens_k=starts),
    )
    assert result.as_numpy("output").tobytes() == expected.out.tobytes()

    q, k, v = tensors()
    lengths = np.array([70, 13], np.int64)
    with attendant.Client(target) as native:
        expected = native.attend(q, k, v, timeout=60, seqlens_k=lengths)
    result = client.infer("attention", inputs((q, k, v), seqlens_k=lengths))
    assert result.as_numpy("output").tobytes() == expected.out.tobytes()


def test_outputs_are_those_asked_for(client):
    asked = [tritonclient.InferRequestedOutput("lse")]
    result = client.infer("attention", inputs(tensors()), outputs=asked)
    assert result.as_numpy("lse").shape == (2, 4, 70)
    assert result.as_numpy("output") is None


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"parameters": {"dropout": "0.5"}}, "UNIMPLEMENTED", "parameters[dropout]"),
        ({"model_name": "llama"}, "NOT_FOUND", "no model 'llama'"),
        ({"priority": 3}, "UNIMPLEMENTED", "parameters[priority]"),
        ({"sequence_id": 5}, "UNIMPLEMENTED", "parameters[sequence_"),
        ({"parameters": {"window_left": -2}}, "INVALID_ARGUMENT", "window_left is -2"),
        ({"parameters": {"alignment": "up"}}, "INVALID_ARGUMENT", "TOP_LEFT"),
    ],
)
def test_errors_say_what_is_wrong_and_the_next_call_is_right(
    client, change, status, words
):
    arrays = tensors(shape=(1, 8, 2, 16))
    call = {"model_name": "attention", "inputs": inputs(arrays), **change}
    with pytest.raises(InferenceServerException) as caught:
        client.infer(**call)
    assert caught.value.status() == f"StatusCode.{status}"
    assert words in caught.value.message()
    assert client.infer("attention", inputs(arrays)).as_numpy("output") is not None


def test_asynchronous_calls(client):
    arrays = tensors()
    expected = client.infer("attention", inputs(arrays)).as_numpy("output")
    done = queue.Queue()
    for _ in range(8):
        client.async_infer(
            "attention",
            inputs(arrays),
            callback=lambda result, error: done.put((result, error)),
        )
    for _ in range(8):
        result, error = done.get(timeout=60)
        assert error is None
        assert result.as_numpy("output").tobytes() == expected.tobytes()
