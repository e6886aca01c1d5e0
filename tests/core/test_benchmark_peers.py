"""Other libraries' rotations: that each is called as it wants to be, and held against float64.

Stand-ins have the functions' signatures and compute by complex numbers; where a library is installed, it is asked too.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from unittest import mock

import pytest
import torch
from torch import Tensor

from posenc_core import benchmark, benchmark_peers, build, parse_spec
from posenc_core.benchmark import Case, Config, Record, run
from posenc_core.benchmark_exact import attention_error, rotation_error
from posenc_core.benchmark_parts import in_turn, result
from posenc_core.benchmark_peers import PEERS, Given, Operation, Skip

HEADS, LENGTH, D_HEAD = 3, 17, 16
MODULES = {
    "transformers": "transformers.models.llama.modeling_llama", "rotary_embedding_torch": "rotary_embedding_torch",
    "torchtune": "torchtune.modules.position_embeddings", "flash_attn": "flash_attn.layers.rotary",
    "liger": "liger_kernel.transformers.rope",
}  # fmt: skip
LAYOUTS = {"transformers": "half", "rotary_embedding_torch": "interleaved", "torchtune": "interleaved",
           "flash_attn": "half", "liger": "half"}  # fmt: skip
ONLY = benchmark_peers._only


def anywhere(adapter: Callable[[Given], Operation]) -> Callable[[Given], Operation]:
    """An adapter whose library may run on a CPU too, as stand-ins do."""

    def made(given: Given) -> Operation:
        def only(given: Given, cuda: bool = False, **more: object) -> None:
            ONLY(given, **more)

        with mock.patch.object(benchmark_peers, "_only", only):
            return adapter(given)

    return made


ADAPTERS = {name: anywhere(adapter) for name, adapter in PEERS.items()}


def given(dtype: torch.dtype = torch.float32, length: int = LENGTH, **fields: object) -> tuple[Given, object]:
    rope = build(parse_spec({"scheme": "rope", "d_head": D_HEAD, **fields}))
    cos, sin = rope.tables(torch.arange(length))
    return Given(rope.spec, cos, sin, rope.inv_freq, D_HEAD, dtype), rope


def turned(x: Tensor, angles: Tensor, interleaved: bool) -> Tensor:
    """x [..., 2·P] times e^(i·angles), angles [..., P] of whatever broadcasts."""
    rotary_dim = 2 * angles.shape[-1]
    part, rest = x[..., :rotary_dim].double(), x[..., rotary_dim:]
    first, second = (part[..., ::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
    z = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
    made = torch.stack([z.real, z.imag], -1).flatten(-2) if interleaved else torch.cat([z.real, z.imag], -1)
    return torch.cat([made.to(x.dtype), rest], -1)


class FakeTransformers:
    """apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1); cos, sin [1, L, D] in q's dtype, both halves alike."""

    @staticmethod
    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        assert cos.shape == sin.shape == (1, q.shape[2], q.shape[3])
        assert cos.dtype == sin.dtype == q.dtype
        assert torch.equal(*cos.chunk(2, -1))
        half = q.shape[-1] // 2
        turn = torch.complex(cos[..., :half].double(), sin[..., :half].double()).unsqueeze(unsqueeze_dim)

        def rotate(x):
            z = torch.complex(*x.double().chunk(2, -1)) * turn
            return torch.cat([z.real, z.imag], -1).to(x.dtype)

        return rotate(q), rotate(k)


class FakeRotaryEmbeddingTorch:
    """RotaryEmbedding(dim, custom_freqs=…).rotate_queries_or_keys(t), t [..., L, D], pairs next to each other."""

    class RotaryEmbedding(torch.nn.Module):
        def __init__(self, dim, custom_freqs=None, theta=10000):
            super().__init__()
            assert custom_freqs.shape == (dim // 2,)
            assert custom_freqs.dtype == torch.float32
            self.freqs = torch.nn.Parameter(custom_freqs, requires_grad=False)

        def rotate_queries_or_keys(self, t):
            return turned(t, torch.arange(t.shape[-2]).double()[:, None] * self.freqs.double(), interleaved=True)


class FakeTorchtune:
    """RotaryPositionalEmbeddings(dim, max_seq_len, base)(x), x [B, L, H, D], pairs next to each other."""

    class RotaryPositionalEmbeddings(torch.nn.Module):
        def __init__(self, dim, max_seq_len=4096, base=10_000):
            super().__init__()
            self.length, self.freqs = max_seq_len, base ** (-torch.arange(0, dim, 2).double() / dim)

        def forward(self, x, *, input_pos=None):
            assert x.shape[1] <= self.length
            assert x.is_contiguous()
            return turned(x, torch.arange(x.shape[1]).double()[:, None, None] * self.freqs, interleaved=True)


class FakeFlashAttn:
    """apply_rotary_emb(x, cos, sin, interleaved), x [B, L, H, D], cos, sin [L, R/2] in x's dtype."""

    @staticmethod
    def apply_rotary_emb(x, cos, sin, interleaved=False, inplace=False):
        assert x.is_contiguous()
        assert cos.shape == sin.shape
        assert cos.shape[0] == x.shape[1]
        assert cos.dtype == sin.dtype == x.dtype
        assert not inplace
        return turned(x, torch.atan2(sin.double(), cos.double())[:, None], interleaved)


class FakeLiger:
    """liger_rotary_pos_emb(q, k, cos, sin): q and k as views of [B, L, H, D], overwritten, also their gradients."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, cos, sin):
            assert q.transpose(1, 2).is_contiguous()
            assert k.transpose(1, 2).is_contiguous()
            ctx.angles = torch.atan2(sin.double(), cos.double())[..., : cos.shape[-1] // 2]
            for x in (q, k):
                x.data.copy_(turned(x.data, ctx.angles, interleaved=False))
            return q.transpose(1, 2).transpose(1, 2), k.transpose(1, 2).transpose(1, 2)

        @staticmethod
        def backward(ctx, dq, dk):
            for x in (dq, dk):
                assert x.transpose(1, 2).is_contiguous()
                x.copy_(turned(x, -ctx.angles, interleaved=False))
            return dq, dk, None, None

    @classmethod
    def liger_rotary_pos_emb(cls, q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
        assert cos.shape == (1, q.shape[2], q.shape[3])
        assert cos.dtype == q.dtype
        return cls.Function.apply(q, k, cos, sin)


FAKES = {
    "transformers": FakeTransformers, "rotary_embedding_torch": FakeRotaryEmbeddingTorch, "torchtune": FakeTorchtune,
    "flash_attn": FakeFlashAttn, "liger": FakeLiger,
}  # fmt: skip


def install(monkeypatch: pytest.MonkeyPatch, name: str, content: object) -> None:
    """A module of that name, and its packages."""
    path = name.split(".")
    for n in range(1, len(path) + 1):
        module = ModuleType(".".join(path[:n]))
        module.__path__ = []
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for key in (k for k in vars(content) if not k.startswith("__")):
        setattr(sys.modules[name], key, getattr(content, key))


def errors(operation: Operation, rope: object, dtype: torch.dtype, batch: int = 2, heads: int = HEADS) -> list[float]:
    """Forward and backward, and that the tensors given stay what they are."""
    generator = torch.Generator().manual_seed(0)
    q, k, dq, dk = (torch.randn(batch, heads, LENGTH, D_HEAD, generator=generator).to(dtype) for _ in range(4))
    before = [t.clone() for t in (q, k, dq, dk)]
    found = [
        rotation_error(rope, (q, k), result(operation, (q, k), None), backward=False),
        rotation_error(rope, (dq, dk), result(operation, (q, k), (dq, dk)), backward=True),
    ]
    for call in (in_turn(operation, [[q], [k]], None), in_turn(operation, [[q], [k]], [[dq], [dk]])):
        for _ in range(3):
            call()
    assert all(map(torch.equal, before, (q, k, dq, dk)))
    return found


BOUNDS = {torch.float32: 1e-6, torch.bfloat16: 0.02}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PEERS)
def test_each_adapter_calls_its_library_as_it_wants_to_be(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, MODULES[name], FAKES[name])
    made, rope = given(dtype, layout=LAYOUTS[name])
    for batch, heads in ((2, HEADS), (1, 1)):
        assert max(errors(ADAPTERS[name](made), rope, dtype, batch, heads)) < BOUNDS[dtype]


@pytest.mark.parametrize(("name", "fields"), [
    ("transformers", {"scaling": "yarn", "factor": 4.0}),
    ("rotary_embedding_torch", {"layout": "interleaved", "scaling": "linear", "factor": 4.0}),
    ("rotary_embedding_torch", {"layout": "interleaved", "rotary_fraction": 0.5}),
    ("torchtune", {"layout": "interleaved", "base": 500_000.0}),
    ("flash_attn", {"layout": "interleaved"}),
    ("flash_attn", {"rotary_fraction": 0.5, "scaling": "linear", "factor": 2.0}),
])  # fmt: skip
def test_what_a_scheme_asks_for_reaches_the_library(
    name: str, fields: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, MODULES[name], FAKES[name])
    made, rope = given(**fields)
    assert max(errors(ADAPTERS[name](made), rope, torch.float32)) < 1e-6


@pytest.mark.parametrize("name", PEERS)
def test_a_wrong_adapter_would_be_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, MODULES[name], FAKES[name])
    made, rope = given(layout=LAYOUTS[name])
    operation = ADAPTERS[name](made)
    wrong = operation._replace(function=lambda q, k: operation.function(k, q))
    assert min(errors(wrong, rope, torch.float32)) > 0.1


@pytest.mark.parametrize(("name", "fields", "reason"), [
    ("transformers", {"layout": "interleaved"}, "it rotates the layout half only; the scheme has interleaved"),
    ("transformers", {"rotary_fraction": 0.5}, "it rotates whole heads only; the scheme rotates 8 of 16 features"),
    ("rotary_embedding_torch", {}, "it rotates the layout interleaved only; the scheme has half"),
    ("rotary_embedding_torch", {"layout": "interleaved", "scaling": "yarn", "factor": 4.0},
     "it has no attention factor on cos and sin"),
    ("torchtune", {"layout": "interleaved", "rotary_fraction": 0.5}, "it rotates whole heads only"),
    ("torchtune", {"layout": "interleaved", "scaling": "linear", "factor": 2.0},
     "torchtune's module has no scaling; the scheme has linear"),
    ("flash_attn", {}, "its kernel runs on CUDA only"),
    ("liger", {}, "its kernel runs on CUDA only"),
])  # fmt: skip
def test_what_a_library_does_not_do_is_said(
    name: str, fields: dict[str, object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, MODULES[name], FAKES[name])
    with pytest.raises(Skip, match=reason):
        PEERS[name](given(**fields)[0])


def test_heads_too_wide_for_flash_attn_are_refused() -> None:
    with pytest.raises(Skip, match="at most 256 features a head, not 512"):
        anywhere(benchmark_peers.flash_attn)(given()[0]._replace(d_head=512))


def records(config: Config) -> dict[str, Record]:
    return {step.record.case.implementation: step.record for step in run(config) if step.record is not None}


def rotation(*names: str, **more: object) -> Config:
    spec = parse_spec({"scheme": "rope"})
    return Config((spec,), (LENGTH,), what=("rotation",), heads=2, d_head=D_HEAD, repetitions=3,
                  implementations=names, **more)  # fmt: skip


@pytest.mark.parametrize(("name", "package"), [
    ("transformers", "transformers"), ("rotary_embedding_torch", "rotary-embedding-torch"), ("torchtune", "torchtune"),
    ("flash_attn", "flash-attn"), ("liger", "liger-kernel"),
])  # fmt: skip
def test_a_library_that_is_not_there_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    for module in [m for m in sys.modules if m.partition(".")[0] == MODULES[name].partition(".")[0]]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(Skip, match=f"^{package} is not installed$"):
        ADAPTERS[name](given(layout=LAYOUTS[name])[0])


def test_a_library_that_does_not_load_is_a_reason(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for source, reason in (
        ("import this_is_nowhere", "transformers cannot be loaded: No module named 'this_is_nowhere'"),
        ("raise RuntimeError('\\n  needs another torch\\n')", "transformers cannot be loaded: needs another torch"),
        ("assert False", "transformers cannot be loaded: AssertionError"),
    ):
        (tmp_path / "transformers.py").write_text(source + "\n")
        (tmp_path / "__pycache__").mkdir(exist_ok=True)
        for module in [m for m in sys.modules if m.partition(".")[0] == "transformers"]:
            monkeypatch.delitem(sys.modules, module)
        importlib.invalidate_caches()
        found = records(rotation("transformers"))
        assert found["transformers"].skipped == reason
        assert found["copy"].skipped == ""
        for cached in (tmp_path / "__pycache__").iterdir():
            cached.unlink()


def test_a_library_that_gives_other_numbers_is_timed_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        @staticmethod
        def apply_rotary_pos_emb(q, k, cos, sin):
            return FakeTransformers.apply_rotary_pos_emb(q, k, cos, -sin)

    install(monkeypatch, MODULES["transformers"], Wrong)
    found = records(rotation("fast", "transformers"))
    assert found["transformers"].median > 0
    assert found["transformers"].error > 0.1
    assert found["transformers"].note == f"gives other numbers: error {found['transformers'].error:.1e}"
    assert found["fast"].note == ""


def test_attention_of_flash_attn_gets_the_slopes_and_tokens_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class FlashAttn:
        @staticmethod
        def flash_attn_func(q, k, v, causal=False, alibi_slopes=None):
            assert causal
            assert all(t.is_contiguous() and t.shape[2] == HEADS for t in (q, k, v))
            scores = torch.einsum("bihd,bjhd->bhij", q, k).double() / D_HEAD**0.5
            i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
            if alibi_slopes is not None:
                assert alibi_slopes.dtype == torch.float32
                scores = scores - alibi_slopes[:, None, None].double() * (i - j).abs()
            weights = scores.masked_fill(j > i, -torch.inf).softmax(-1)
            return torch.einsum("bhij,bjhd->bihd", weights, v.double()).to(q.dtype)

    install(monkeypatch, "flash_attn", FlashAttn)
    qkv = [torch.randn(2, HEADS, LENGTH, D_HEAD, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    for scheme in ("none", "alibi"):
        encoding = build(parse_spec({"scheme": scheme}), **({"n_heads": HEADS} if scheme == "alibi" else {}))
        operation = benchmark_peers.flash_attention(encoding.bias_slopes(), torch.bfloat16, "cuda")
        assert attention_error(encoding, qkv, result(operation, qkv, None), None) < 1e-6
    for dtype, device in ((torch.float32, "cuda"), (torch.bfloat16, "cpu")):
        with pytest.raises(Skip, match="CUDA in half precision only"):
            benchmark_peers.flash_attention(None, dtype, device)


# ------------------------------------------------------------------ the libraries themselves


def real(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("name", ["transformers", "rotary_embedding_torch", "torchtune"])
def test_the_library_itself_agrees_where_it_is_installed(name: str) -> None:
    real(name)
    for fields in ({}, {"base": 500_000.0}):
        made, rope = given(layout=LAYOUTS[name], **fields)
        try:
            operation = PEERS[name](made)
        except Skip as error:
            pytest.skip(str(error))
        assert max(errors(operation, rope, torch.float32)) < 2e-6  # phases in float32 cost some bits


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: not run on CUDA")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", PEERS)
def test_the_libraries_on_cuda(name: str, dtype: str) -> None:
    spec = parse_spec({"scheme": "rope", "layout": LAYOUTS[name]})
    config = Config((spec,), (128,), devices=("cuda",), dtypes=(dtype,), what=("rotation",), implementations=(name,),
                    backward=(False, True), repetitions=3)  # fmt: skip
    found = [s.record for s in run(config) if s.record is not None and s.record.case.implementation == name]
    if found[0].skipped:
        pytest.skip(found[0].skipped)
    assert [r.note for r in found] == ["", ""]
    assert [r.case for r in found] == [
        Case(spec, 128, "cuda", dtype, "rotation", name, backward) for backward in (False, True)
    ]


def test_every_peer_is_an_implementation() -> None:
    assert set(PEERS) < set(benchmark.IMPLEMENTATIONS["rotation"])
    assert not set(PEERS) & set(benchmark.OWN)
