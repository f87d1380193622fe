"""What the encoder writes."""

import pathlib

import ml_dtypes
import numpy as np
import pytest

import attendant
from attendant import tensor
from attendant.reply import decode_response
from attendant.request import AttendOptions, encode_request
from attendant.v1 import attention_pb2 as pb

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"


def golden(name):
    """The bytes of a golden file."""
    lines = (GOLDEN / name).read_text().splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def parse(q=None, k=None, v=None, **options):
    """The encoded request, as protobuf reads it."""
    return pb.AttendRequest.FromString(encode_request(q, k, v, options))


def test_writes_the_golden_request():
    q = np.zeros((1, 2, 1, 2), np.float32)
    k = np.arange(1, 7, dtype=np.float32).reshape(1, 3, 1, 2)
    v = np.array([1, 2, 6], np.float32).reshape(1, 3, 1, 1)
    request = encode_request(
        q,
        k,
        v,
        {
            "request_id": "golden-1",
            "seqlens_k": [3],
            "softmax_scale": 0.5,
            "causal": True,
            "alignment": "bottom_right",
            "return_lse": True,
        },
    )
    assert request == golden("attend_request.hex")


def test_reads_the_golden_response():
    result = decode_response(golden("attend_response.hex"), 1)
    np.testing.assert_array_equal(result.out.reshape(-1), [1.5, 3])
    np.testing.assert_allclose(result.lse.reshape(-1), np.log([2, 3]), rtol=1e-6)
    assert result.stages.total_ns == 4240
    assert result.workspace_bytes == 512
    assert result.served_by.compute_dtype == "fp32"


def test_writes_every_option():
    options = AttendOptions(
        layout="thd",
        qkv=np.ones((1, 2, 1), np.float32),
        num_q_heads=3,
        num_kv_heads=4,
        compute_dtype="bf16",
        output_dtype="fp32",
        cu_seqlens_q=np.array([0, 5]),
        cu_seqlens_k=[0, 6],
        seqlens_q=[7],
        seqlens_k=[8],
        starts_q=[9],
        starts_k=[10],
        softmax_scale=0.0,
        softcap=0.0,
        causal=True,
        alignment="bottom_right",
        window_left=0,
        window_right=0,
        alibi_slopes=np.array([[0.5], [0.25]], np.float32),
        sinks=[-1.0],
        mask=np.ones((1, 1, 2, 4), np.bool_),
        return_lse=True,
        dropout_p=0.25,
        request_id="id",
        priority=-3,
        ordering_key="key",
    )
    request = parse(**options)
    # Every field but what this request leaves out: q, k, v and regions.
    absent = {"q", "k", "v", "q_data", "k_data", "v_data"}
    absent |= {"output_region", "lse_region"}
    written = {field.name for field, _ in request.ListFields()}
    assert written == {field.name for field in request.DESCRIPTOR.fields} - absent
    assert request.HasField("softmax_scale")
    assert list(request.alibi_slopes) == [0.5, 0.25]
    assert request.qkv.layout == pb.LAYOUT_THD
    assert request.mask_data == b"\1" * 8


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a,
        lambda a: a.transpose(0, 2, 1, 3),
        lambda a: a[:, ::2],
        lambda a: a[:, ::-1],
        lambda a: a[..., ::2],
        lambda a: a[:, 1:3, :, 1:],
        np.asfortranarray,
        lambda a: a.astype(">f4"),
        lambda a: a[:, :0],
    ],
)
def test_makes_arrays_contiguous(view):
    array = view(np.arange(48, dtype=np.float32).reshape(1, 4, 3, 4))
    request = parse(q=array)
    assert not request.q.strides
    sent = np.frombuffer(request.q_data, "<f4").reshape(tuple(request.q.shape))
    np.testing.assert_array_equal(sent, array)


def test_sends_repeated_dimensions_once():
    base = np.arange(8, dtype=np.float32).reshape(1, 2, 1, 4)
    request = parse(k=np.broadcast_to(base, (5, 2, 3, 4)))
    assert list(request.k.shape) == [5, 2, 3, 4]
    assert list(request.k.strides) == [0, 4, 0, 1]
    assert request.k_data == base.tobytes()
    # The innermost dimension must step.
    request = parse(k=np.broadcast_to(base[..., :1], (1, 2, 1, 4)))
    assert len(request.k_data) == 32


def test_packs_masks_into_bits_by_rows():
    mask = np.zeros((1, 1, 2, 9), np.bool_)
    mask[0, 0, 0, [0, 8]] = True
    mask[0, 0, 1, 1] = True
    request = parse(mask=mask, mask_bits=True)
    assert request.mask.dtype == pb.DATA_TYPE_BOOL_BITS
    assert request.mask_data == bytes([1, 1, 2, 0])


def test_knows_bf16_by_ml_dtypes_and_by_name(monkeypatch):
    array = np.array([[1.5]], ml_dtypes.bfloat16)
    assert parse(q=array).q.dtype == pb.DATA_TYPE_BF16
    bits = array.view(np.uint16)
    request = parse(q=bits, dtype="bf16")
    assert request.q.dtype == pb.DATA_TYPE_BF16
    spec, data = request.q, memoryview(request.q_data)
    assert tensor.decode("q", spec, data).dtype == ml_dtypes.bfloat16
    monkeypatch.setattr(tensor, "BFLOAT16", None)
    assert tensor.decode("q", spec, data).dtype == np.uint16


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"q": np.zeros(2)}, "q.dtype"),  # float64
        ({"q": np.zeros(2, np.uint16)}, "q.dtype"),
        ({"q": np.zeros(2, np.float32), "layout": "sbhd"}, "layout"),
        ({"alignment": "left"}, "alignment"),
        ({"compute_dtype": "fp8"}, "compute_dtype"),
        ({"priority": 1 << 40}, "priority"),
        ({"mask": np.zeros((1, 1, 1, 1), np.float32), "mask_bits": True}, "mask_bits"),
    ],
)
def test_names_what_is_wrong(options, field):
    with pytest.raises(attendant.AttendantError) as caught:
        parse(**options)
    assert caught.value.field == field


def test_refuses_options_it_does_not_know():
    with pytest.raises(TypeError, match="casual"):
        parse(casual=True)
