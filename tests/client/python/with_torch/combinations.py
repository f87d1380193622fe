"""The argument combinations that the drop-ins are held to.

Each is a name, the call, and either what is right or what is raised.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional

import attendant
from attendant import flash_attn, flash_attn_3
from oracle import Rules, flash_rules


@dataclasses.dataclass
class Combination:
    """ask() -> (O, LSE or None) in [batch, heads, rows, size]."""

    name: str
    ask: Callable[[], Any]
    qkv: tuple[torch.Tensor, ...] = ()
    rules: Rules | None = None
    raises: type[Exception] | None = None


def random(*shape, dtype, seed):
    """Normal numbers, always the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


VIEWS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "sliced": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "stepped": lambda x: torch.stack([x, x], -1)[..., 0],
}


def sdpa_masks(kind, batch, heads, rows, keys, dtype):
    """A mask, and what it means for torch itself."""
    generator = torch.Generator().manual_seed(5)
    full = torch.rand(batch, heads, rows, keys, generator=generator) < 0.6
    if kind == "bool":
        full[:, :, 0] = False  # a row that sees nothing
        return full
    if kind == "bool_2d":
        return full[0, 0]
    if kind == "bool_keys":
        return full[:, :1, :1]
    if kind == "bool_rows":
        return full[:1, :, :, :1]
    if kind == "bool_expanded":
        return full[:, :1].expand(batch, heads, rows, keys)
    added = torch.randn(batch, heads, rows, keys, generator=generator)
    if kind == "float":
        return added.to(dtype)
    if kind == "float_2d":
        return added[0, 0].to(dtype)
    if kind == "float_inf":
        return added.masked_fill(~full, float("-inf")).to(dtype)
    return None


def sdpa_case(dtype, sizes, heads, kind, view, scale, device):
    """One call of scaled_dot_product_attention."""
    batch, rows, keys, size, v_size = sizes
    q_heads, kv_heads = heads
    seed = rows * 31 + keys
    q = random(batch, q_heads, rows, size, dtype=dtype, seed=seed)
    k = random(batch, kv_heads, keys, size, dtype=dtype, seed=seed + 1)
    v = random(batch, kv_heads, keys, v_size, dtype=dtype, seed=seed + 2)
    q, k, v = (VIEWS[view](x) for x in (q, k, v))
    mask = sdpa_masks(kind, batch, q_heads, rows, keys, dtype)
    options = {
        "attn_mask": mask,
        "is_causal": kind == "causal",
        "scale": scale,
        "enable_gqa": q_heads != kv_heads,
    }
    visible, bias = torch.ones(1, 1, rows, keys, dtype=torch.bool), None
    if kind == "causal":
        visible = visible.tril()  # aligned to the top left
    elif mask is not None and mask.dtype == torch.bool:
        visible = mask
    elif mask is not None:
        bias = mask.double()
    moved = {n: x.to(device) if torch.is_tensor(x) else x for n, x in options.items()}
    tensors = [x.to(device) for x in (q, k, v)]

    def ask():
        out = attendant.scaled_dot_product_attention(*tensors, **moved)
        return out.cpu(), None

    def torchs():
        wide = dict(options)
        if mask is not None and mask.dtype != torch.bool:
            wide["attn_mask"] = mask.double()
        return functional.scaled_dot_product_attention(
            q.double(), k.double(), v.double(), **wide
        )

    name = f"sdpa {dtype} {sizes} {heads} {kind} {view} {scale}"
    case = Combination(name, ask, (q, k, v), Rules(visible, bias, scale))
    case.torchs = torchs
    return case


def sdpa_cases(dtypes, device):
    """All of them."""
    sizes = [(2, 7, 7, 16, 16), (1, 5, 9, 24, 8), (2, 9, 5, 40, 40), (1, 1, 33, 64, 64)]
    heads = [(4, 4), (4, 2), (3, 1)]
    kinds = [
        "none",
        "causal",
        "bool",
        "bool_2d",
        "bool_keys",
        "bool_rows",
        "bool_expanded",
        "float",
        "float_2d",
        "float_inf",
    ]
    for dtype, size, head, kind in itertools.product(dtypes, sizes, heads, kinds):
        number = len(kind) + size[1] + head[1]
        view = list(VIEWS)[number % 4]
        scale = [None, 0.3, 1.5][number % 3]
        yield sdpa_case(dtype, size, head, kind, view, scale, device)


FORMS = ["func", "qkvpacked", "kvpacked", "varlen", "varlen_qkvpacked"]
FORMS += ["varlen_kvpacked", "fa3", "fa3_varlen", "fa3_qkvpacked_gqa"]


def _ask_form(form, q, k, v, options):
    """The call of one form; q, k, v are [batch, rows, heads, size]."""
    batch, rows, keys = q.shape[0], q.shape[1], k.shape[1]
    options = dict(options)
    slopes = options.pop("alibi_slopes", None)
    if form.startswith("fa3"):
        module = flash_attn_3
    else:
        module = flash_attn
        options["alibi_slopes"] = slopes
    if form == "fa3_qkvpacked_gqa":
        packed = torch.cat([q, k, v], 2)
        return module.flash_attn_qkvpacked_func(
            packed, num_heads_q=q.shape[2], return_attn_probs=True, **options
        )
    kind = form.removeprefix("fa3").strip("_") or "func"
    if kind == "qkvpacked":
        tensors = [torch.stack([q, k, v], 2)]
    elif kind == "kvpacked":
        tensors = [q, torch.stack([k, v], 2)]
    elif kind == "func":
        tensors = [q, k, v]
    else:
        flat = [x.flatten(0, 1) for x in (q, k, v)]
        cu_q = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * rows
        cu_k = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * keys
        tail = [cu_q, cu_k, rows, keys]
        if kind == "varlen_qkvpacked":
            tensors = [torch.stack(flat, 1), cu_q, rows]
        elif kind == "varlen_kvpacked":
            tensors = [flat[0], torch.stack(flat[1:], 1), *tail]
        else:
            tensors = [*flat, *tail]
    function = getattr(module, f"flash_attn_{kind}_func".replace("_func_func", "_func"))
    if kind == "func":
        function = module.flash_attn_func
    answer = function(*tensors, return_attn_probs=True, **options)
    if "varlen" in form:
        out = answer[0].unflatten(0, (batch, rows))
        lse = answer[1].unflatten(1, (batch, rows)).transpose(0, 1)
        return out, lse
    return answer


def flash_case(dtype, form, sizes, heads, options, view, device):
    """One call of a flash-attn function."""
    batch, rows, keys, size = sizes
    if "qkvpacked" in form:
        keys = rows
        if "gqa" not in form:
            heads = (heads[0], heads[0])
    seed = rows * 17 + keys
    q = random(batch, rows, heads[0], size, dtype=dtype, seed=seed)
    k, v = (
        random(batch, keys, heads[1], size, dtype=dtype, seed=seed + n) for n in (1, 2)
    )
    q, k, v = (VIEWS[view](x) for x in (q, k, v))
    options = dict(options)
    slopes = None
    if options.pop("alibi", False) and not form.startswith("fa3"):
        slopes = torch.linspace(0.1, 0.8, heads[0])
        options["alibi_slopes"] = slopes.to(device)
    rules = flash_rules(
        rows,
        keys,
        options.get("causal", False),
        options.get("window_size", (-1, -1)),
        slopes,
        scale=options.get("softmax_scale"),
        softcap=options.get("softcap", 0.0),
    )

    def ask():
        tensors = [x.to(device) for x in (q, k, v)]
        out, lse, *_ = _ask_form(form, *tensors, options)
        return out.transpose(1, 2).cpu(), lse.cpu()

    name = f"{form} {dtype} {sizes} {heads} {options} {view}"
    qkv = tuple(x.transpose(1, 2) for x in (q, k, v))
    return Combination(name, ask, qkv, rules)


def flash_cases(dtypes, device):
    """All of them."""
    sizes = [(2, 6, 6, 32), (1, 4, 11, 59), (2, 11, 4, 80), (3, 1, 17, 128)]
    sizes += [(1, 130, 70, 8)]
    settings = [
        {},
        {"causal": True},
        {"causal": True, "softmax_scale": 0.2},
        {"window_size": (2, 0)},
        {"window_size": (0, 3), "softcap": 2.5},
        {"causal": True, "window_size": (3, -1), "alibi": True},
        {"softcap": 1.0, "alibi": True},
    ]
    count = itertools.count()
    for form, size, setting in itertools.product(FORMS, sizes, settings):
        number = next(count)
        dtype = dtypes[number % len(dtypes)]
        heads = [(4, 4), (6, 2), (5, 1)][number % 3]
        view = list(VIEWS)[number % 4]
        yield flash_case(dtype, form, size, heads, setting, view, device)


def refused_cases(device):
    """What the documentation says is not offered."""
    x = torch.zeros(1, 4, 4, 16, dtype=torch.bfloat16, device=device)
    wide = torch.zeros(1, 4, 4, 257, dtype=torch.bfloat16, device=device)
    flat, cu = x[0], torch.tensor([0, 4], dtype=torch.int32)
    varlen = (flat, flat, flat, cu, cu, 4, 4)
    sdpa = attendant.scaled_dot_product_attention
    fa2, fa3 = flash_attn.flash_attn_func, flash_attn_3.flash_attn_func
    error, missing = attendant.AttendantError, NotImplementedError
    mask = torch.ones(4, 4, dtype=torch.bool, device=device)
    for name, raised, ask in (
        ("sdpa dropout", missing, lambda: sdpa(x, x, x, dropout_p=0.1)),
        ("sdpa float64", error, lambda: sdpa(*[x.double()] * 3)),
        ("sdpa head size", error, lambda: sdpa(wide, wide, wide)),
        ("sdpa both", ValueError, lambda: sdpa(x, x, x, mask, is_causal=True)),
        ("sdpa heads", ValueError, lambda: sdpa(x, x[:, :2], x[:, :2])),
        ("sdpa scale", error, lambda: sdpa(x, x, x, scale=float("nan"))),
        ("fa2 dropout", missing, lambda: fa2(x, x, x, 0.1)),
        ("fa2 order", TypeError, lambda: fa2(x, x, x, None)),
        ("fa2 heads", error, lambda: fa2(x, x[:, :, :3], x[:, :, :3])),
        ("fa2 head size", error, lambda: fa2(wide, wide, wide)),
        ("fa2 int8", error, lambda: fa2(*[x.to(torch.int8)] * 3)),
        (
            "varlen pages",
            missing,
            lambda: flash_attn.flash_attn_varlen_func(*varlen, block_table=cu),
        ),
        (
            "varlen bounds",
            error,
            lambda: flash_attn.flash_attn_varlen_func(
                flat, flat, flat, cu + 1, cu + 1, 4, 4
            ),
        ),
        ("fa3 qv", missing, lambda: fa3(x, x, x, qv=x)),
        ("fa3 order", TypeError, lambda: fa3(x, x, x, True)),
        ("fa3 chunk", missing, lambda: fa3(x, x, x, attention_chunk=2)),
        ("fa3 fp8", missing, lambda: fa3(x, x, x, q_descale=cu)),
        (
            "fa3 used",
            missing,
            lambda: flash_attn_3.flash_attn_varlen_func(*varlen, seqused_k=cu),
        ),
    ):
        yield Combination(name, ask, raises=raised)


def all_cases(device):
    """Every combination, of types that the server's devices take."""
    narrow = [torch.bfloat16, torch.float16]
    dtypes = narrow if device != "cpu" else [*narrow, torch.float32]
    yield from sdpa_cases(dtypes, device)
    yield from flash_cases(dtypes, device)
    yield from refused_cases(device)
