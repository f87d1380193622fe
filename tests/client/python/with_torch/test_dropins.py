"""The faults that others shipped, at the drop-ins; answers known by hand."""

import inspect
import math

import pytest
import torch
import torch.nn.functional as functional
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import attendant
from attendant import flash_attn, flash_attn_3
from attendant.torch_ops import call

pytestmark = pytest.mark.usefixtures("served")
sdpa = attendant.scaled_dot_product_attention
BF16 = torch.bfloat16


def count_probe(rows, keys, device):
    """q = 0, V[j] = j + 1, as [batch, rows, heads, size]."""
    q = torch.zeros(1, rows, 1, 8, dtype=BF16)
    k = torch.ones(1, keys, 1, 8, dtype=BF16)
    v = torch.arange(1.0, keys + 1).reshape(1, keys, 1, 1).to(BF16)
    return [x.to(device) for x in (q, k, v)]


CAUSAL = {
    (2, 5, "top_left"): [1, 1.5],
    (2, 5, "bottom_right"): [2.5, 3],
    (5, 2, "top_left"): [1, 1.5, 1.5, 1.5, 1.5],
    (5, 2, "bottom_right"): [0, 0, 0, 1, 1.5],
}


@pytest.mark.parametrize(("rows", "keys"), [(2, 5), (5, 2)])
def test_causal_is_top_left_for_sdpa_and_bottom_right_for_flash(rows, keys, device):
    q, k, v = count_probe(rows, keys, device)
    top, bottom = (CAUSAL[rows, keys, a] for a in ("top_left", "bottom_right"))
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    flat = [x[0] for x in (q, k, v)]
    cu = [torch.tensor([0, n], dtype=torch.int32) for n in (rows, keys)]
    lower_right = causal_lower_right(rows, keys)
    upper_left = causal_upper_left(rows, keys)
    for got, want in (
        (sdpa(*heads_first, is_causal=True), top),
        (sdpa(*heads_first, attn_mask=upper_left), top),
        (sdpa(*heads_first, attn_mask=lower_right), bottom),
        (flash_attn.flash_attn_func(q, k, v, causal=True), bottom),
        (flash_attn_3.flash_attn_func(q, k, v, None, True), bottom),
        (
            flash_attn.flash_attn_varlen_func(*flat, *cu, rows, keys, causal=True),
            bottom,
        ),
    ):
        assert got.flatten().tolist() == want


def test_windows_count_from_the_right_place(device):
    q, k, v = count_probe(5, 5, device)
    for window, want in (
        ((1, 0), [1, 1.5, 2.5, 3.5, 4.5]),
        ((2, 0), [1, 1.5, 2, 3, 4]),
    ):
        got = flash_attn.flash_attn_func(q, k, v, window_size=window)
        assert got.flatten().tolist() == want


def test_rows_that_see_nothing_are_zero_and_minus_infinity(device):
    q, k, v = count_probe(5, 2, device)
    out, lse, mask = flash_attn.flash_attn_func(
        q, k, v, causal=True, return_attn_probs=True
    )
    assert mask is None
    assert out.flatten().tolist() == [0, 0, 0, 1, 1.5]
    assert lse.flatten()[:3].tolist() == [-math.inf] * 3
    torch.testing.assert_close(lse.flatten()[3:].cpu(), torch.tensor([0, math.log(2)]))
    nothing = torch.zeros(1, 1, 5, 2, dtype=torch.bool, device=device)
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    assert sdpa(*heads_first, attn_mask=nothing).flatten().tolist() == [0] * 5
    least = torch.full((1, 1, 5, 2), torch.finfo(BF16).min, device=device, dtype=BF16)
    uniform = sdpa(*heads_first, attn_mask=least).flatten().tolist()
    assert uniform == [1.5] * 5, "the least number is not a mask"


def test_a_boolean_mask_says_where_to_attend(device):
    q, k, v = (x.transpose(1, 2) for x in count_probe(1, 6, device))
    mask = torch.zeros(1, 6, dtype=torch.bool, device=device)
    mask[0, 4] = True
    assert sdpa(q, k, v, attn_mask=mask).item() == 5


def test_the_scale_is_that_of_the_true_head_size(device):
    q, k, v = (torch.zeros(1, 2, 1, 80, dtype=BF16) for _ in range(3))
    q[0, :, 0, 0] = math.sqrt(80) * math.log(3)
    k[0, 0, 0, 0] = 1
    v[0, 0, 0, 0] = 1
    q, k, v = (x.to(device) for x in (q, k, v))
    got = flash_attn.flash_attn_func(q, k, v)[0, 0, 0, 0].item()
    assert abs(got - 0.75) < 0.005


@pytest.mark.parametrize(("heads", "kv_heads"), [(32, 8), (6, 2), (71, 1), (5, 5)])
def test_head_h_reads_kv_head_h_over_the_group(heads, kv_heads, device):
    q = torch.zeros(1, 3, heads, 16, dtype=BF16, device=device)
    k = torch.zeros(1, 4, kv_heads, 16, dtype=BF16, device=device)
    v = torch.arange(kv_heads, device=device, dtype=BF16).reshape(1, 1, kv_heads, 1)
    v = v.expand(1, 4, kv_heads, 16)
    want = [h // (heads // kv_heads) for h in range(heads)]
    assert flash_attn.flash_attn_func(q, k, v)[0, 0, :, 0].tolist() == want
    turned = [x.transpose(1, 2) for x in (q, k, v)]
    assert sdpa(*turned, enable_gqa=True)[0, :, 0, 0].tolist() == want


@pytest.mark.parametrize("size", [1, 8, 40, 59, 72, 80, 96, 111, 112, 120, 192, 256])
def test_every_head_size(size, device):
    random = torch.Generator().manual_seed(size)
    q, k, v = (
        torch.randn(1, 2, 20, n, generator=random).to(BF16).to(device)
        for n in (size, size, min(size, 128))
    )
    want = functional.scaled_dot_product_attention(*(x.double() for x in (q, k, v)))
    torch.testing.assert_close(sdpa(q, k, v).double(), want, atol=0.02, rtol=0.02)


def test_zero_batch_rows_and_keys(device):
    for batch, rows, keys in ((0, 3, 3), (2, 0, 3), (2, 3, 0)):
        q = torch.ones(batch, rows, 2, 8, dtype=BF16, device=device)
        k = torch.ones(batch, keys, 2, 8, dtype=BF16, device=device)
        out, lse, _ = flash_attn.flash_attn_func(q, k, k, return_attn_probs=True)
        assert out.shape == q.shape
        assert (out == 0).all() and (lse == -math.inf).all()
    x = torch.ones(3, 2, 8, dtype=BF16, device=device)
    for cu in ([0, 0, 3], [0, 3, 3], [0, 0, 0, 3]):
        cu = torch.tensor(cu, dtype=torch.int32, device=device)
        out = flash_attn.flash_attn_varlen_func(x, x, x, cu, cu, 3, 3)
        assert (out == 1).all()


def test_views_give_what_their_copies_give_bitwise(device):
    qkv = torch.randn(2, 9, 3, 4, 32).to(BF16).to(device)
    views = qkv.unbind(2)
    want = flash_attn.flash_attn_func(*(x.contiguous() for x in views), causal=True)
    for got in (
        flash_attn.flash_attn_func(*views, causal=True),
        flash_attn.flash_attn_qkvpacked_func(qkv, causal=True),
        sdpa(*(x.transpose(1, 2) for x in views), is_causal=True).transpose(1, 2),
        flash_attn.flash_attn_func(
            *(torch.stack([x, x], -1)[..., 0] for x in views), causal=True
        ),
    ):
        assert torch.equal(got, want)
    one = views[1][:, :, :1]
    wide = [one.expand(-1, -1, 4, -1)] * 2
    want = flash_attn.flash_attn_func(views[0], *(x.contiguous() for x in wide))
    assert torch.equal(flash_attn.flash_attn_func(views[0], *wide), want)


def test_dimensions_before_the_heads(device):
    for lead in ((), (2,), (2, 3), (2, 1, 3)):
        q, k, v = (torch.randn(*lead, 5, 16).to(device).to(BF16) for _ in "qkv")
        mask = torch.rand(*lead[1:], 5, 5, device=device) < 0.5
        mask[..., 0] = True
        got = sdpa(q, k, v, attn_mask=mask)
        want = functional.scaled_dot_product_attention(
            q.double(), k.double(), v.double(), attn_mask=mask
        )
        assert got.shape == q.shape
        torch.testing.assert_close(got.double(), want, atol=0.02, rtol=0.02)


def test_logits_far_below_zero_are_not_masked(device):
    q = torch.full((1, 1, 4, 16), 100.0, dtype=BF16, device=device)
    k = torch.full((1, 1, 8, 16), -62.5, dtype=BF16, device=device)
    k[..., 3, :] = -62.25
    v = torch.arange(8.0, device=device).reshape(1, 1, 8, 1).to(BF16)
    assert sdpa(q, k, v, scale=1.0).flatten().tolist() == [3] * 4


@pytest.mark.parametrize("rows", [1, 64])
def test_softcap_and_sinks_are_not_dropped(rows, device):
    q = torch.zeros(1, rows, 1, 8, dtype=BF16, device=device)
    q[..., 0] = 1
    k = torch.zeros(1, 2, 1, 8, dtype=BF16, device=device)
    k[0, 0, 0, 0] = 100
    v = torch.tensor([1.0, 0.0], device=device).reshape(1, 2, 1, 1).to(BF16)
    got = flash_attn.flash_attn_func(q, k, v, softmax_scale=1.0, softcap=1.0)
    assert abs(got.flatten()[-1].item() - 0.7311) < 0.003
    q, k, _ = count_probe(rows, 3, device)
    four = torch.full((1, 3, 1, 1), 4.0, dtype=BF16, device=device)
    for sink, want in ((0.0, 3.0), (-math.inf, 4.0)):
        sinks = torch.tensor([sink])
        out, lse = call(
            q,
            k,
            four,
            layout="bshd",
            alignment="bottom_right",
            sinks=sinks,
            return_lse=True,
        )
        assert out.flatten()[-1].item() == want
        assert abs(lse.flatten()[-1].item() - math.log(3)) < 1e-3


def test_argument_names_and_defaults_are_flash_attns():
    tail = (
        "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), "
        "softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False"
    )
    lengths = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
    for name, want in {
        "flash_attn_func": f"q, k, v, {tail}",
        "flash_attn_qkvpacked_func": f"qkv, {tail}",
        "flash_attn_kvpacked_func": f"q, kv, {tail}",
        "flash_attn_varlen_func": f"q, k, v, {lengths}, {tail}, block_table=None",
        "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {tail}",
        "flash_attn_varlen_kvpacked_func": f"q, kv, {lengths}, {tail}",
    }.items():
        assert plain_signature(getattr(flash_attn, name)) == want
    assert plain_signature(flash_attn_3.flash_attn_func) == (
        "q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, "
        "k_descale=None, v_descale=None, window_size=(-1, -1), attention_chunk=0, "
        "softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, "
        "return_attn_probs=False"
    )
    assert plain_signature(sdpa) == (
        "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, "
        "scale=None, enable_gqa=False"
    )


def plain_signature(function):
    """Without annotations."""
    signature = inspect.signature(function)
    bare = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
    ]
    signature = signature.replace(
        parameters=bare, return_annotation=inspect.Signature.empty
    )
    return str(signature)[1:-1]
