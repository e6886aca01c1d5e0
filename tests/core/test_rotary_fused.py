"""Eager and fused rotation against complex numbers in float64; tables that are kept, and tables made in pieces."""

import gc
import subprocess
import sys
import threading
import warnings
import weakref
from itertools import product

import numpy as np
import pytest
import torch
from support import needs_cxx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from posenc_core import apply_rotary, apply_rotary_qk, rotary, rotary_cpu
from posenc_core.benchmark_measure import _Allocations
from posenc_core.rotary import cos_sin
from posenc_core.schemes import rope
from posenc_core.schemes.rope import RopeSpec

LAYOUTS = ("half", "interleaved")
layouts = pytest.mark.parametrize("layout", LAYOUTS)
# where the second half of a step is the fused kernel, needs_cxx makes its absence visible
forms = pytest.mark.parametrize("fused", [False, pytest.param(True, marks=needs_cxx)])
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def angles(*shape, seed=9):
    return 40 * normal(*shape, seed=seed)


def tables(angle, dtype):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return angle.cos().to(wide), angle.sin().to(wide)


def expected(x, angle, layout):
    """The rotation as a multiplication of complex numbers, in NumPy and float64."""
    out, turn = x.double().numpy().copy(), np.exp(1j * angle.numpy())
    rotary_dim = 2 * turn.shape[-1]
    first, second = (
        (slice(0, rotary_dim // 2), slice(rotary_dim // 2, rotary_dim))
        if layout == "half"
        else (slice(0, rotary_dim, 2), slice(1, rotary_dim, 2))
    )
    turned = (out[..., first] + 1j * out[..., second]) * turn
    out[..., first], out[..., second] = turned.real, turned.imag
    return torch.from_numpy(out)


def close(made, x, angle, layout):
    """Within two roundings of the largest numbers that occur."""
    difference = (made.double() - expected(x, angle, layout)).abs().max().item() if x.numel() else 0.0
    return difference <= 2 * torch.finfo(x.dtype).eps * max(1.0, 2 * x.double().abs().max().item() if x.numel() else 1)


@forms
@layouts
@dtypes
def test_sizes_strides_and_partial_rotation(fused, layout, dtype):
    for length, width, heads in product((1, 2, 7, 65, 130), (2, 6, 10, 64, 80), (1, 3)):
        for rotary_dim in {2, width // 2 // 2 * 2 or 2, width}:
            angle = angles(length, rotary_dim // 2)
            whole = normal(2, length, heads, width + 3, dtype=dtype)
            for x in (whole[..., :width].transpose(1, 2), whole[..., 3:].transpose(1, 2), whole[0, :, 0, 1:-2]):
                made = apply_rotary(x, *tables(angle, dtype), layout, fused)
                assert made.dtype == dtype
                assert made.shape == x.shape
                assert close(made, x, angle, layout), (length, width, heads, rotary_dim)
                assert torch.equal(made[..., rotary_dim:], x[..., rotary_dim:])


@forms
@layouts
@dtypes
@pytest.mark.parametrize(
    ("shape", "table"),
    [
        ((5, 8), (5,)), ((3, 5, 8), (5,)), ((2, 3, 5, 8), (2, 1, 5)), ((2, 3, 5, 8), (1, 3, 5)), ((2, 3, 5, 8), (1,)),
        ((2, 3, 5, 8), (2, 3, 5)), ((2, 3, 5, 8), (3, 1)), ((4, 2, 3, 5, 8), (2, 1, 5)), ((8,), ()),
        ((2, 0, 5, 8), (5,)), ((2, 3, 0, 8), (0,)),
    ],
)  # fmt: skip
def test_tables_broadcast(fused, layout, dtype, shape, table):
    x, angle = normal(*shape, dtype=dtype), angles(*table, 4)
    assert close(apply_rotary(x, *tables(angle, dtype), layout, fused), x, angle, layout)


@forms
@layouts
@dtypes
def test_inputs_and_tables_that_lie_oddly_in_memory(fused, layout, dtype):
    angle = angles(6, 4)
    cos, sin = tables(angle, dtype)
    for x in (
        normal(1, 1, 1, 8, dtype=dtype).expand(2, 3, 6, 8),
        normal(2, 3, 6, 16, dtype=dtype)[..., ::2],
        normal(2, 3, 8, 6, dtype=dtype).transpose(2, 3),
        normal(2, 3, 12, 8, dtype=dtype)[:, :, ::2],
    ):
        assert close(apply_rotary(x, cos, sin, layout, fused), x, angle, layout)
    x = normal(2, 3, 6, 8, dtype=dtype)
    spaced = torch.stack([cos, cos], -1)[..., 0]
    assert close(apply_rotary(x, spaced, sin.T.contiguous().T, layout, fused), x, angle, layout)
    wide = angle.cos(), angle.sin()
    assert close(apply_rotary(x, *wide, layout, fused), x, angle, layout)


@forms
@layouts
@dtypes
def test_in_place(fused, layout, dtype):
    for whole, rotary_dim in product((normal(2, 5, 3, 12, dtype=dtype), normal(2, 3, 5, 12, dtype=dtype)), (8, 12)):
        x = whole.transpose(1, 2) if whole.shape[1] == 5 else whole
        before, angle, version = x.clone(), angles(5, rotary_dim // 2), x._version
        made = apply_rotary(x, *tables(angle, dtype), layout, fused, inplace=True)
        assert made is x
        assert close(x, before, angle, layout)
        assert torch.equal(x, apply_rotary(before, *tables(angle, dtype), layout, fused))
        assert x._version > version


@forms
def test_in_place_is_refused_where_it_would_be_wrong(fused):
    cos, sin = tables(angles(5, 4), torch.float32)
    x, plain = torch.ones(5, 8, requires_grad=True), torch.ones(5, 8)
    with pytest.raises(ValueError, match="inplace = True is not legal where a gradient"):
        apply_rotary(x, cos, sin, fused=fused, inplace=True)
    with torch.no_grad():
        apply_rotary(x, cos, sin, fused=fused, inplace=True)
    overlapping = torch.ones(24).as_strided((5, 8), (4, 1))
    for shared in (torch.ones(1, 8).expand(5, 8), torch.ones(2, 1, 8).expand(2, 2, 8), overlapping):
        with pytest.raises(ValueError, match="inplace = True is not legal for an x whose numbers share memory"):
            apply_rotary(shared, cos[: shared.shape[-2]], sin[: shared.shape[-2]], fused=fused, inplace=True)
    with pytest.raises(ValueError, match="inplace = True is not legal for a k that is q"):
        apply_rotary_qk(plain, plain.view(5, 8), cos, sin, fused=fused, inplace=True)
    with pytest.raises(ValueError, match="inplace = True is not legal for tables with a gradient"):
        apply_rotary(plain, cos.clone().requires_grad_(), sin, fused=fused, inplace=True)
    assert torch.equal(plain, torch.ones(5, 8))
    qkv = torch.ones(5, 3, 8)  # slices of one projection are legal
    made = apply_rotary_qk(qkv[:, 0], qkv[:, 1], cos, sin, fused=fused, inplace=True)
    assert torch.equal(made[0], apply_rotary(plain, cos, sin, fused=fused))
    assert torch.equal(made[1], made[0])
    assert torch.equal(qkv[:, 2], torch.ones(5, 8))
    with torch.inference_mode():
        assert apply_rotary(torch.ones(5, 8), cos, sin, fused=fused, inplace=True).is_inference()


@forms
def test_autograd_sees_that_an_input_was_overwritten(fused):
    cos, sin = tables(angles(5, 4), torch.float32)
    x, w = torch.ones(5, 8), torch.ones(5, 8, requires_grad=True)
    product = x * w  # keeps x for the gradient of w
    apply_rotary(x, cos, sin, fused=fused, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@needs_cxx
@dtypes
def test_fused_and_eager_give_the_same_bits(dtype):
    """half always; interleaved where whole rows fill the registers: PyTorch rounds the rest of a row otherwise."""
    for width, length in product((2, 6, 16, 64, 80, 128), (1, 5, 64, 129)):
        x, (cos, sin) = normal(2, 3, length, width, dtype=dtype), tables(angles(length, width // 2), dtype)
        for layout in LAYOUTS if width % 16 == 0 else ("half",):
            eager, fused = (apply_rotary(x, cos, sin, layout, f) for f in (False, True))
            assert torch.equal(eager, fused), (width, length, layout)


@needs_cxx
@layouts
def test_infinite_and_nan_stay_in_their_pair(layout):
    x, (cos, sin) = torch.ones(3, 8), tables(angles(3, 4), torch.float32)
    x[1, 2] = torch.nan
    x[2, 0] = torch.inf
    partner = {"half": (6, 4), "interleaved": (3, 1)}[layout]
    bad = torch.zeros(3, 8, dtype=torch.bool)
    bad[1, [2, partner[0]]] = bad[2, [0, partner[1]]] = True
    for dtype in (torch.float32, torch.bfloat16):
        made = apply_rotary(x.to(dtype), cos, sin, layout, fused=True)
        assert torch.equal(~made.isfinite(), bad)
        assert made[1].isnan().sum() == 2
        assert not made[2].isnan().any()


@forms
@layouts
@dtypes
def test_queries_and_fewer_keys_together(fused, layout, dtype):
    q, k, angle = normal(2, 4, 6, 8, dtype=dtype), normal(2, 2, 6, 8, dtype=dtype, seed=1), angles(2, 1, 6, 3)
    cos, sin = tables(angle, dtype)
    made = apply_rotary_qk(q, k, cos, sin, layout, fused)
    for x, y in zip((q, k), made, strict=True):
        assert close(y, x, angle, layout)
        assert torch.equal(y, apply_rotary(x, cos, sin, layout, fused))
    kept = q.clone(), k.clone()
    assert apply_rotary_qk(*kept, cos, sin, layout, fused, inplace=True)[0] is kept[0]
    assert all(torch.equal(a, b) for a, b in zip(kept, made, strict=True))


@forms
def test_queries_and_keys_of_two_dtypes(fused):
    q, k, angle = normal(1, 2, 6, 8, dtype=torch.float32), normal(1, 2, 6, 8, dtype=torch.bfloat16), angles(6, 4)
    made = apply_rotary_qk(q, k, *tables(angle, torch.float32), fused=fused)
    assert [y.dtype for y in made] == [torch.float32, torch.bfloat16]
    assert close(made[0], q, angle, "half")
    assert close(made[1], k, angle, "half")


@forms
@layouts
def test_gradients(fused, layout):
    (cos, sin), q, k = tables(angles(3, 3), torch.float64), normal(1, 2, 3, 8), normal(1, 1, 3, 8, seed=1)
    q, k = q.requires_grad_(), k.requires_grad_()

    def turned(q, k):
        return apply_rotary_qk(q, k, cos, sin, layout, fused)

    assert torch.autograd.gradcheck(turned, (q, k))
    assert torch.autograd.gradgradcheck(lambda q, k: turned(q, k)[0].square() * turned(q, k)[1], (q, k))
    (only_k,) = torch.autograd.grad(turned(q.detach(), k)[1].sum(), k)
    torch.testing.assert_close(only_k, apply_rotary(torch.ones_like(k), cos, -sin, layout))


@forms
@layouts
@dtypes
def test_the_gradient_is_the_rotation_backwards(fused, layout, dtype):
    x, angle, g = normal(2, 3, 5, 12, dtype=dtype), angles(5, 4), normal(2, 3, 5, 12, dtype=dtype, seed=3)
    x.requires_grad_()
    (made,) = torch.autograd.grad(apply_rotary(x, *tables(angle, dtype), layout, fused), x, g)
    assert made.dtype == dtype
    assert close(made, g, -angle, layout)


@needs_cxx
@layouts
def test_transforms_and_traces_with_a_warm_kernel(layout):
    assert rotary.warm_up()
    (cos, sin), x = tables(angles(5, 4), torch.float64), normal(2, 3, 5, 8)
    plain = apply_rotary(x, cos, sin, layout)

    def turn(x):
        return apply_rotary(x, cos, sin, layout)

    torch.testing.assert_close(torch.vmap(turn)(x), plain)
    torch.testing.assert_close(torch.func.jvp(turn, (x,), (x,))[1], plain)
    torch.testing.assert_close(torch.compile(turn, fullgraph=True, backend="aot_eager")(x), plain)
    torch.testing.assert_close(make_fx(turn)(torch.zeros_like(x))(x), plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of torch.jit
        torch.testing.assert_close(torch.jit.trace(turn, torch.zeros_like(x))(x), plain)
    meta = (t.to("meta") for t in (x, cos, sin))
    assert apply_rotary(*meta, layout).shape == x.shape
    inside = torch.compile(lambda x: apply_rotary(x.clone(), cos, sin, layout, inplace=True), backend="aot_eager")
    torch.testing.assert_close(inside(x), plain)


@forms
@layouts
def test_vmap_where_one_table_is_the_same_for_all(fused, layout):
    x, angle = normal(3, 2, 5, 8), angles(3, 5, 4)
    cos, sin = angle.cos(), angle[0].sin()

    def turn(x, cos):
        return apply_rotary(x, cos, sin, layout, fused)

    expected = torch.stack([turn(*one) for one in zip(x, cos, strict=True)])
    torch.testing.assert_close(torch.vmap(turn)(x, cos), expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(torch.vmap(turn, (None, 0))(x[0], cos)[0], expected[0], rtol=0, atol=1e-14)


@forms
def test_tables_and_numbers_that_do_not_lie_where_they_seem_to(fused):
    x, (cos, sin) = normal(2, 5, 8, dtype=torch.float32), tables(angles(5, 4), torch.float32)
    with pytest.raises(RuntimeError):
        apply_rotary(x, cos.to("meta"), sin.to("meta"), fused=fused)
    with pytest.raises(RuntimeError):
        apply_rotary(x, cos, sin.to("meta"), fused=fused)
    negative = torch._neg_view(x)
    assert negative.is_neg()
    plain = apply_rotary(x, cos, sin, fused=fused)
    torch.testing.assert_close(apply_rotary(negative, cos, sin, fused=fused), -plain)
    torch.testing.assert_close(apply_rotary(x, cos, torch._neg_view(-sin), fused=fused), plain)
    zeros = torch._efficientzerotensor((2, 5, 8))
    assert torch.equal(apply_rotary(zeros, cos, sin, fused=fused), torch.zeros(2, 5, 8))


@pytest.mark.parametrize(("x", "table"), [((), (1,)), ((8,), ())])
def test_numbers_without_a_dimension_are_refused(x, table):
    with pytest.raises(ValueError, match=r"legal: \[..., D\] and \[..., D/2\]"):
        apply_rotary(torch.ones(x), torch.ones(table), torch.ones(table))


# ------------------------------------------------------------------ when it is compiled


@pytest.fixture
def cold(monkeypatch):
    """A process that has compiled nothing yet."""
    monkeypatch.setattr(rotary_cpu, "_library", None)
    monkeypatch.setattr(rotary_cpu, "_failure", "")
    monkeypatch.setattr(rotary, "_warned", set())
    rotary_cpu.compiler.cache_clear()
    yield monkeypatch
    rotary_cpu.compiler.cache_clear()


def rotated(fused):
    x, (cos, sin) = normal(1, 2, 5, 8, dtype=torch.float32), tables(angles(5, 4), torch.float32)
    return apply_rotary(x, cos, sin, fused=fused)


@needs_cxx
def test_nothing_is_compiled_unasked(cold):
    made = rotated(None), rotated(False)
    assert not rotary.fused_is_warm()
    made += (rotated(True),)
    assert rotary.fused_is_warm()
    assert all(torch.equal(made[0], m) for m in (*made, rotated(None)))


@needs_cxx
def test_where_it_is_warm_it_is_used_unasked_and_not_where_refused(cold):
    calls = []
    rotate = rotary_cpu.rotate
    cold.setattr(rotary_cpu, "rotate", lambda *a: calls.append(a) or rotate(*a))
    assert rotary.warm_up()
    calls.clear()
    rotated(False)
    assert not calls
    rotated(None)
    assert len(calls) == 1


@needs_cxx
def test_threads_that_ask_at_once_compile_once(cold):
    made, compiled = [], []
    compile_ = rotary_cpu._compile
    cold.setattr(rotary_cpu, "_compile", lambda: compiled.append(1) or compile_())
    threads = [threading.Thread(target=lambda: made.append(rotated(True))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled == [1]
    assert len(made) == 8
    assert all(torch.equal(m, made[0]) for m in made)


def compiler_that(tmp_path, does):
    path = tmp_path / "c++"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(sys.platform == "win32", reason="the compilers are shell scripts")
@pytest.mark.parametrize(
    ("does", "sentence"),
    [
        ("echo 'no such flag' >&2; exit 1", "cannot compile rotary.cpp: no such flag"),
        ("exec sleep 30", "did not end within"),
        ("exit 0", "rotary.so"),
        ("printf '\\377\\n' >&2; exit 1", "cannot compile rotary.cpp"),
    ],
)
def test_a_compiler_that_fails_leaves_the_eager_result_and_one_warning(cold, tmp_path, does, sentence):
    cold.setenv("CXX", compiler_that(tmp_path, does))
    cold.setattr(rotary_cpu, "TIMEOUT", 0.5)
    with pytest.warns(RuntimeWarning, match=sentence):
        made = rotated(True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(rotated(True), made)  # says so once, and does not try again
        assert torch.equal(rotated(None), made)
        assert not rotary.warm_up()
    assert torch.equal(made, rotated(False))


def test_without_a_compiler(cold):
    cold.setenv("CXX", "/nowhere/c++")
    cold.setenv("PATH", "/nowhere")
    assert rotary.compiler() is None
    with pytest.warns(RuntimeWarning, match="no C\\+\\+ compiler"):
        made = rotated(True)
    assert torch.equal(made, rotated(False))
    assert not rotary.fused_is_warm()


@needs_cxx
def test_a_fresh_process_compiles_it_and_leaves_no_file(tmp_path):
    code = (
        "import torch; from posenc_core import rotary; assert not rotary.fused_is_warm(); assert rotary.warm_up();"
        "torch.set_num_threads(2); x = torch.ones(1, 8, 4096, 64);"
        "c = torch.full((4096, 32), 0.6); s = torch.full((4096, 32), 0.8);"
        "y = rotary.apply_rotary(x, c, s); print(y.min().item(), y.max().item())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
        env={"TMPDIR": str(tmp_path), "PATH": __import__("os").environ["PATH"], "PYTHONPATH": "."},
    )  # fmt: skip
    low, high = map(float, done.stdout.split())
    assert low == pytest.approx(-0.2, abs=1e-6)
    assert high == pytest.approx(1.4, abs=1e-6)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ tables


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tables_in_pieces_are_the_tables_at_once(dtype, monkeypatch):
    positions, inv_freq = torch.arange(1000) + 10**6, RopeSpec(d_head=16).inv_freq()
    whole = cos_sin(positions, inv_freq, dtype=dtype, attention_factor=1.25)
    monkeypatch.setattr(rotary, "AT_ONCE", 8 * 37)
    for a, b in zip(whole, cos_sin(positions, inv_freq, dtype=dtype, attention_factor=1.25), strict=True):
        assert torch.equal(a, b)


def test_a_million_positions_take_little_more_than_their_tables():
    positions, inv_freq = torch.arange(2**20), RopeSpec(d_head=128).inv_freq()
    with _Allocations() as allocations:
        cos, sin = cos_sin(positions, inv_freq)
    size = cos.nbytes + sin.nbytes
    assert size == 2**20 * 64 * 2 * 4
    assert allocations.peak < size + 40 * 2**20
    for p in (0, 1, 123_457, 2**20 - 1):
        angle = p * np.float64(10_000.0) ** (-2 * np.arange(64) / 128)
        np.testing.assert_allclose(cos[p].numpy(), np.cos(angle), atol=1e-7)
        np.testing.assert_allclose(sin[p].numpy(), np.sin(angle), atol=1e-7)


def test_modules_of_one_spec_share_their_tables_and_others_do_not():
    a, b, other = RopeSpec(d_head=10).build(), RopeSpec(d_head=10).build(), RopeSpec(d_head=10, base=500.0).build()
    made = a.tables(torch.arange(7))
    assert b.tables(torch.arange(7))[0] is made[0]
    assert other.tables(torch.arange(7))[0] is not made[0]
    assert a.tables(torch.arange(7), torch.float64)[0].dtype == torch.float64
    assert a.tables(torch.arange(7.0))[0] is not made[0]
    assert not torch.equal(a.tables(torch.arange(7) + 1)[0], made[0])
    b.inv_freq = b.inv_freq / 2
    assert torch.equal(b.tables(2 * torch.arange(7))[0], made[0])
    assert b.build_tables(torch.arange(7))[0] is not b.build_tables(torch.arange(7))[0]


def test_tables_of_two_calls_are_kept_and_no_more():
    module = RopeSpec(d_head=14).build()
    q, k, third = torch.arange(1) + 9, torch.arange(10), torch.arange(11)
    first = module.tables(q)[0], module.tables(k)[0]
    assert (module.tables(q)[0] is first[0], module.tables(k)[0] is first[1]) == (True, True)
    module.tables(third)
    assert module.tables(k)[0] is first[1]
    assert module.tables(q)[0] is not first[0]


def test_frequencies_that_follow_the_length_keep_no_more_either():
    module = RopeSpec(d_head=18, scaling="dynamic", factor=2.0, original_max_position_embeddings=8).build()
    for n in range(1, 40):
        made = module.tables(torch.arange(n))
        assert torch.equal(made[0], module.build_tables(torch.arange(n))[0])
    assert [len(kept) for kept in module._tables._kept.values()] == [2]


def test_tables_go_with_the_last_module():
    a, b = RopeSpec(d_head=22).build(), RopeSpec(d_head=22).build()
    table = weakref.ref(a.tables(torch.arange(7))[0])
    del a
    gc.collect()
    assert table() is not None
    del b
    gc.collect()
    assert table() is None
    assert RopeSpec(d_head=22) not in rope._Tables._shared


def test_nothing_that_is_traced_or_transformed_is_kept_for_others():
    module, p = RopeSpec(d_head=26).build(), torch.arange(5)
    expected = module.build_tables(p)[1]
    torch.vmap(lambda p: module.tables(p)[1])(torch.stack([p, p + 1]))
    with FakeTensorMode(allow_non_fake_inputs=True):
        module.tables(torch.arange(5))
    make_fx(lambda p: module.tables(p)[1], tracing_mode="fake", _allow_non_fake_inputs=True)(p)
    assert torch.equal(module.tables(p)[1], expected)
    assert torch.equal(module.tables(p)[1], expected)
    shifted = make_fx(lambda p: module.tables(p)[1])(p)(p + 7)
    assert torch.equal(shifted, module.build_tables(p + 7)[1])
    exact = p.double()
    module.tables(exact)
    _, tangent = torch.func.jvp(lambda p: module.tables(p, torch.float64)[1], (exact,), (torch.ones_like(exact),))
    slope = module.inv_freq * (exact[:, None] * module.inv_freq).cos()
    torch.testing.assert_close(tangent, slope, rtol=0, atol=1e-12)


def test_positions_of_two_dtypes_and_written_to_on_a_gpu_are_told_apart():
    module = RopeSpec(d_head=28).build()
    for _ in range(2):
        for p in (torch.arange(5), torch.arange(5.0), torch.arange(5) + 3, torch.arange(5.0) + 3):
            assert torch.equal(module.tables(p)[0], module.build_tables(p)[0])
    p = torch.arange(5, device="meta")  # as on a GPU, its numbers are not looked at
    inv_freq = torch.ones(2)
    kept = rope._Kept(weakref.ref(p), p._version, p, inv_freq, None, (inv_freq, inv_freq))
    assert kept.fits(p, inv_freq, None)
    assert not kept.fits(p, inv_freq, 9)
    assert not kept.fits(p.clone(), inv_freq, None)
    p.add_(1)
    assert not kept.fits(p, inv_freq, None)
