"""What the benchmark times: that it is the thing meant, moves the bytes told, and is as exact as told."""

from __future__ import annotations

import math
from itertools import groupby, pairwise, product

import pytest
import torch
from support import plain_attention, rotate_complex
from torch.nn.functional import scaled_dot_product_attention

from posenc_core import SCHEMES, benchmark, benchmark_exact, benchmark_parts, build, parse_spec, rotary
from posenc_core.benchmark import ALL_IMPLEMENTATIONS, IMPLEMENTATIONS, Case, Config, Record, estimated_bytes, run
from posenc_core.benchmark_exact import attention_error, layer_error, rotation_error, spread
from posenc_core.benchmark_measure import _Allocations, peak_bytes
from posenc_core.benchmark_parts import PARTS, Shared, gradients, only, result
from posenc_core.benchmark_peers import Operation, Skip

NONE, ROPE, ALIBI = (parse_spec({"scheme": s}) for s in ("none", "rope", "alibi"))
OWN = tuple(n for n in ALL_IMPLEMENTATIONS if n in benchmark.OWN)
YARN = {"scheme": "rope", "scaling": "yarn", "factor": 4.0, "attention_on": "scores"}
SPECS = {
    "none": {"scheme": "none"}, "rope": {"scheme": "rope"}, "interleaved": {"scheme": "rope", "layout": "interleaved"},
    "partial": {"scheme": "rope", "rotary_fraction": 0.5}, "yarn": YARN, "alibi": {"scheme": "alibi"},
    "dynamic": {"scheme": "rope", "scaling": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8},
    "symmetric": {"scheme": "alibi", "variant": "symmetric"},
}  # fmt: skip
ROPES = [n for n, m in SPECS.items() if m["scheme"] == "rope"]


def records(config: Config) -> list[Record]:
    return [step.record for step in run(config) if step.record is not None]


def bench(case: Case, config: Config) -> benchmark._Bench:
    return benchmark._Bench(case, config, Shared(case, config))


def sized(name: str, heads: int, d_head: int):
    spec = parse_spec(SPECS[name])
    read = {p.name for p in spec.params()}
    return build(spec, **{k: v for k, v in {"n_heads": heads, "d_head": d_head}.items() if k in read})


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------ exact


@pytest.mark.parametrize(("n", "most"), [(1, 1), (5, 64), (64, 64), (65, 64), (4096, 64), (4096, 1)])
def test_rows_are_spread_to_both_ends(n: int, most: int) -> None:
    rows = spread(n, most).tolist()
    assert rows == sorted(set(rows))
    assert len(rows) == min(n, most)
    assert rows[-1] == n - 1
    if len(rows) > 1:
        assert rows[0] == 0
        assert max(b - a for a, b in pairwise(rows)) <= math.ceil(n / (len(rows) - 1))


@pytest.mark.parametrize("name", ROPES)
def test_the_exact_rotation_is_a_multiplication_of_complex_numbers(name: str) -> None:
    encoding = sized(name, 2, 8)
    x = draw(2, 1, 9, 8)
    right = torch.tensor(
        [[[rotate_complex(encoding.spec, x[b, 0, p].tolist(), p, 9) for p in range(9)]] for b in (0, 1)],
        dtype=torch.float64,
    )
    q_k = (x, x)
    assert rotation_error(encoding, q_k, (right, right), backward=False) < 1e-12
    wrong = right.clone()
    wrong[1, 0, 8, 3] += 0.01 * wrong.abs().max()
    assert rotation_error(encoding, q_k, (right, wrong), backward=False) == pytest.approx(0.01, rel=1e-3)
    # the gradient of x is the output's, turned back
    back = gradients(lambda x: (rotary._pure(x, *encoding.tables(torch.arange(9), torch.float64),
                                             encoding.spec.layout),), [x.double()], [right])  # fmt: skip
    assert rotation_error(encoding, (right, right), (back[0], back[0]), backward=True) < 1e-12


@pytest.mark.parametrize("name", list(SPECS))
def test_the_exact_attention_is_that_of_explicit_loops(name: str) -> None:
    heads, length, d_head = 2, 7, 8
    encoding = sized(name, heads, d_head)
    q, k, v = (draw(2, heads, length, d_head, seed=i) for i in range(3))
    positions = torch.arange(length)
    right, _ = plain_attention(encoding.spec, q, k, v, positions, positions)
    assert attention_error(encoding, (q, k, v), (right,), None) < 1e-12
    wrong = right.clone()
    wrong[0, 1, 6, 2] += 0.02 * right[0].abs().max()
    assert attention_error(encoding, (q, k, v), (wrong,), None) == pytest.approx(0.02, rel=1e-6)
    assert attention_error(encoding, (q, k, v), (right * torch.nan,), None) == math.inf


@pytest.mark.parametrize("name", ["none", "interleaved", "yarn", "alibi"])
def test_exact_gradients_of_few_rows_are_those_of_all_scores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, length, d_head = 2, 23, 8
    monkeypatch.setattr(benchmark_exact, "SCORES", heads * length * 5)
    rows = benchmark_exact.attention_rows(heads, length)
    assert len(rows) == 5
    encoding = sized(name, heads, d_head)
    qkv = [draw(2, heads, length, d_head, seed=i).double() for i in range(3)]
    given = only(draw(2, heads, length, d_head, seed=4).double(), rows)
    positions = torch.arange(length)

    def attend(q, k, v):
        scores = benchmark_parts.attention(q, k, v, encoding, positions, positions, need_weights=True)
        return (scores[0],)

    got = gradients(attend, qkv, [given])
    assert attention_error(encoding, qkv, got, given) < 1e-12
    for i in range(3):
        wrong = [g.clone() for g in got]
        wrong[i][0, 1, 3, 5] += 0.03 * wrong[i][0].abs().max()
        assert attention_error(encoding, qkv, wrong, given) == pytest.approx(0.03, rel=0.5)


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "rope", "alibi"])
def test_the_exact_layer_is_linear_maps_around_attention(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, d_head, length, width = 2, 8, 19, 16
    monkeypatch.setattr(benchmark_exact, "WORK", 12 * width**2)  # looked at are the first 12 of 19 positions
    encoding = build(parse_spec({"scheme": scheme}), d_model=width, n_heads=heads, d_head=d_head,
                     max_position_embeddings=length).requires_grad_(False)  # fmt: skip
    x, w_in, w_out = (
        draw(2, length, width).double(),
        draw(48, 16, seed=1).double() / 4,
        draw(16, 16, seed=2).double() / 4,
    )
    positions = torch.arange(length)

    def layer(x):
        q, k, v = ((encoding.embed(x, positions) @ w.T).unflatten(-1, (heads, d_head)).transpose(1, 2)
                   for w in w_in.chunk(3))  # fmt: skip
        q, k = encoding.rotate(q, k, positions, positions)
        bias = encoding.bias(positions, positions, q, k)
        late = torch.full((length, length), -torch.inf).triu(1).double()
        out = scaled_dot_product_attention(q, k, v, attn_mask=late if bias is None else bias + late)
        return (out.transpose(1, 2).flatten(-2) @ w_out.T,)

    right = layer(x)[0]
    assert layer_error(encoding, True, (w_in, w_out), heads, x, right, None) < 1e-12
    seen, rows = benchmark_exact.layer_rows(width, heads, length)
    assert (seen, rows.tolist()) == (12, list(range(12)))
    wrong = right.clone()
    wrong[0, 11, 3] += 0.02 * right[0, :12].abs().max()
    assert layer_error(encoding, True, (w_in, w_out), heads, x, wrong, None) == pytest.approx(0.02, rel=1e-6)
    given = only(draw(2, length, width, seed=5).double(), rows)
    (got,) = gradients(layer, [x], [given])
    assert layer_error(encoding, True, (w_in, w_out), heads, x, got, given) < 1e-12
    got[0, 0, 0] += 0.05 * got[0].abs().max()
    assert layer_error(encoding, True, (w_in, w_out), heads, x, got, given) == pytest.approx(0.05, rel=0.5)


def test_the_check_of_a_long_sequence_is_bounded() -> None:
    encoding = build(ALIBI)
    qkv = [draw(1, 8, 4096, 64, seed=i) for i in range(3)]
    peak, _ = peak_bytes(lambda: attention_error(encoding, qkv, qkv, qkv[0]), "cpu")
    assert peak < 64 * 2**20  # all scores in float64 take 1 GiB
    assert len(benchmark_exact.attention_rows(8, 16384)) * 8 * 16384 <= benchmark_exact.SCORES
    assert len(benchmark_exact.attention_rows(256, 16384)) == 1
    assert benchmark_exact.layer_rows(8192, 128, 16384)[0] * 8192**2 <= benchmark_exact.WORK


# ------------------------------------------------------------------ every implementation of this library


@pytest.mark.parametrize(("name", "dtype", "backward"), [
    *product(["rope", "interleaved", "partial", "yarn", "dynamic"], ["float32", "bfloat16"], [False, True]),
])  # fmt: skip
def test_rotations_are_as_exact_as_their_dtype(name: str, dtype: str, backward: bool) -> None:
    config = Config(
        (parse_spec(SPECS[name]),), (33,), dtypes=(dtype,), what=("rotation",), heads=3, d_head=16, batch=2,
        implementations=("fast", "eager", "in_place", "reference"), backward=(backward,), repetitions=3,
    )  # fmt: skip
    found = {r.case.implementation: r for r in records(config)}
    assert found.pop("copy").error is found.pop("copy_given").error is None
    if backward:
        assert found.pop("in_place").skipped == "a rotation in place has no gradient"
    bound = {"float32": 3e-7, "bfloat16": 2**-8}[dtype]  # one rounding at most, relative to the largest number
    assert {n: r.error < bound for n, r in found.items()} == dict.fromkeys(found, True)
    assert not [r.note for r in found.values() if "other numbers" in r.note]


@pytest.mark.parametrize(("scheme", "dtype", "backward"), [
    *product(["none", "rope", "alibi", "sinusoidal", "hybrid"], ["float32", "bfloat16"], [False, True]),
])  # fmt: skip
def test_attention_and_layers_are_as_exact_as_their_dtype(scheme: str, dtype: str, backward: bool) -> None:
    config = Config(
        (parse_spec({"scheme": scheme}),), (130,), dtypes=(dtype,), what=("attention", "layer"), heads=2, d_head=16,
        batch=2, implementations=OWN, backward=(backward,), repetitions=3,
    )  # fmt: skip
    found = [r for r in records(config) if r.case.spec.scheme == scheme]
    measured = {(r.case.what, r.case.implementation) for r in found if not r.skipped}
    assert measured >= set(product(("attention", "layer"), ("fast", "reference")))
    assert {("attention", "bias"), ("attention", "bias_cached")} <= measured or scheme != "alibi"
    for r in found:
        if r.skipped:
            assert r.skipped == "this scheme adds no bias to the scores"
        else:
            assert r.error < {"float32": 5e-6, "bfloat16": 0.04}[dtype], r


def test_flex_attention_is_timed_where_it_can_be_compiled() -> None:
    config = Config((ALIBI,), (128,), what=("attention",), heads=2, d_head=16, implementations=("flex_attention",),
                    repetitions=3)  # fmt: skip
    _, flex = records(config)
    if flex.skipped:
        pytest.skip(f"not here: {flex.skipped}")
    assert flex.error < 5e-6
    assert flex.peak_bytes is None or flex.peak_bytes > 0


def test_the_compiler_starts_anew_with_each_length_and_not_within_one(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: log.append("reset"))
    monkeypatch.setattr(
        benchmark_parts, "alibi_flex_attention", lambda q, k, v, slopes: log.append(str(q.shape[2])) or q
    )
    other = parse_spec({"scheme": "alibi", "variant": "symmetric"})
    config = Config((ALIBI, other), (16, 32), what=("attention",), implementations=("flex_attention",), repetitions=3)
    records(config)
    assert [name for name, _ in groupby(log)] == ["reset", "16", "reset", "32"]


def test_an_implementation_that_a_scheme_does_not_have_says_why() -> None:
    config = Config(
        (ROPE, ALIBI), (16,), what=("rotation", "attention"), implementations=ALL_IMPLEMENTATIONS, repetitions=3
    )
    for case, reason in {
        Case(ALIBI, 16, what="rotation"): "this scheme rotates nothing",
        Case(SCHEMES["hybrid"](), 16, what="rotation"): "this scheme rotates nothing by itself",
        Case(ROPE, 16, what="attention", implementation="bias"): "this scheme adds no bias to the scores",
        Case(ROPE, 16, what="attention", implementation="flash_attn"): "this scheme adds no bias to the scores",
        Case(ALIBI, 16, what="attention", implementation="flash_attn"): "flash-attn's attention runs on CUDA in half",
        Case(NONE, 16, what="attention", implementation="flash_attn"): "flash-attn's attention runs on CUDA in half",
        Case(ALIBI, 16, what="attention", implementation="flex_attention", backward=True): "has no gradient on a CPU",
        Case(ROPE, 16, what="rotation", implementation="liger"): "its kernel runs on CUDA only",
    }.items():  # fmt: skip
        with pytest.raises(Skip, match=reason):
            bench(case, config)


def test_without_the_fused_rotation_fast_is_eager_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_parts.rotary, "warm_up", lambda device: False)
    config = Config((ROPE,), (16,), what=("rotation", "layer"), heads=2, d_head=8, repetitions=3)
    notes = {(r.case.what, r.case.implementation, r.case.spec.scheme): r.note for r in records(config)}
    assert notes["rotation", "fast", "rope"] == "without the fused rotation, which cannot be compiled here"
    assert notes["layer", "fast", "rope"] == "without the fused rotation, which cannot be compiled here"
    assert notes["layer", "fast", "none"] == ""


# ------------------------------------------------------------------ bytes


def test_the_bytes_that_must_be_moved() -> None:
    b, h, n, d = 2, 3, 32, 8
    q = b * h * n * d * 4
    tables = 2 * n * d // 2 * 4
    half = {"scheme": "rope", "rotary_fraction": 0.5}

    def moved(spec: dict[str, object], what: str, name: str = "fast", backward: bool = False) -> int | None:
        config = Config((parse_spec(spec),), (n,), heads=h, d_head=d, batch=b, repetitions=3)
        return bench(Case(parse_spec(spec), n, what=what, implementation=name, backward=backward), config).bytes_moved

    rope = {"scheme": "rope"}
    assert moved(rope, "rotation", "copy") == 4 * q  # q and k, read and written
    assert moved(rope, "rotation", "copy", backward=True) == 8 * q
    assert moved(rope, "rotation") == moved(rope, "rotation", "in_place") == 4 * q + tables
    assert moved(rope, "rotation", "reference", backward=True) == 8 * q + 2 * tables
    assert moved(half, "rotation") == 4 * q + tables // 2
    assert moved(half, "rotation", "in_place") == 2 * q + tables // 2
    assert moved(rope, "attention") == moved({"scheme": "alibi"}, "attention", "bias") == 4 * q
    assert moved(rope, "attention", backward=True) == 8 * q
    assert moved(rope, "layer") == 2 * q + 4 * (h * d) ** 2 * 4
    assert moved(rope, "layer", backward=True) == 4 * q + 4 * (h * d) ** 2 * 4
    assert moved(rope, "tables_built") == tables
    assert moved({"scheme": "alibi"}, "tables_built") == h * (2 * n - 1) * 4
    assert moved({"scheme": "sinusoidal"}, "tables_built") == n * h * d * 4
    assert moved(rope, "tables_cached") is None


def test_peak_memory_of_rotations_and_attention() -> None:
    config = Config(
        (ROPE,), (256,), what=("rotation",), heads=4, d_head=32, repetitions=3, backward=(False, True),
        implementations=("fast", "in_place", "reference"),
    )  # fmt: skip
    one = 4 * 256 * 32 * 4
    peak = {(r.case.implementation, r.case.backward): r.peak_bytes for r in records(config)}
    assert peak["copy", False] == peak["fast", False] == 2 * one  # the results, and nothing else
    assert peak["in_place", False] == 0
    assert peak["reference", False] > 2 * one
    assert peak["copy", True] == 4 * one
    assert peak["fast", True] >= 4 * one
    config = Config((ALIBI,), (512,), what=("attention",), heads=4, d_head=32, repetitions=3, implementations=OWN)
    peak = {(r.case.spec.scheme, r.case.implementation): r.peak_bytes for r in records(config) if not r.skipped}
    bias = 4 * 512 * 512 * 4
    assert peak["alibi", "bias"] >= bias
    assert bias <= peak["alibi", "bias_cached"] < peak["alibi", "bias"]  # what is kept counts
    assert peak["alibi", "fast"] < bias
    assert peak["alibi", "reference"] >= 2 * bias


@pytest.mark.parametrize("what", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_estimate_of_bytes_is_not_below_what_is_measured(scheme: str, dtype: str, what: benchmark.What) -> None:
    """All that a case allocates, its inputs, tables and two calls included, on both sides of where paths change."""
    for length, batch in ((64, 3), (600, 1)):
        config = Config((parse_spec({"scheme": scheme}),), (length,), dtypes=(dtype,), what=(what,), heads=4, d_head=32,
                        batch=batch, implementations=OWN, backward=(False, True), repetitions=3)  # fmt: skip
        for case in config.groups()[0]:
            try:
                with torch.no_grad(), _Allocations() as allocations:
                    made = bench(case, config)
                    for part in (*made.parts, *made.parts):
                        part.call()
            except Skip:
                continue
            assert allocations.peak <= estimated_bytes(case, config), case


def test_estimates_know_what_has_a_bias_and_what_has_not() -> None:
    config = Config((ALIBI,), (16384,), repetitions=3)

    def estimate(spec, what, name="fast"):
        return estimated_bytes(Case(spec, 16384, what=what, implementation=name), config)

    square = 8 * 16384**2 * 4
    for what in ("layer", "attention"):
        assert estimate(ALIBI, what) < estimate(NONE, what) + 2**29 < config.max_bytes
    assert estimate(ALIBI, "attention", "bias_cached") > square
    assert 2**20 < estimate(ALIBI, "tables_built") < square / 100
    assert estimate(NONE, "attention", "reference") > 2 * square


def test_tables_of_a_million_positions_are_legal_and_bounded() -> None:
    config = Config((ROPE,), (2**20,), what=("tables_built", "tables_cached"), heads=1, d_head=128, repetitions=3)
    built, cached = config.groups()[0]
    tables = 2 * 2**20 * 64 * 4
    assert 2 * tables < estimated_bytes(built, config) < config.max_bytes
    assert estimated_bytes(cached, config) < config.max_bytes
    shorter = Case(ROPE, 2**17, what="tables_built")
    made = bench(shorter, config)
    made._weigh()
    assert made.bytes_moved == tables / 8
    assert made.peak_bytes < tables / 8 + 2**26  # float64 phases of all at once would take as much again, twice


# ------------------------------------------------------------------ calls


def test_gradients_leave_nothing_behind() -> None:
    x, y = draw(3), draw(3, seed=1)
    got = gradients(lambda a, b: (a * b, a + b), [x, y], [torch.ones(3), torch.full((3,), 2.0)])
    assert torch.equal(got[0], y + 2)
    assert torch.equal(got[1], x + 2)
    assert x.grad is y.grad is None
    assert not x.requires_grad
    config = Config((ROPE,), (16,), heads=2, d_head=8, repetitions=3)
    case = Case(ROPE, 16, backward=True)
    shared = Shared(case, config)
    made = PARTS["layer"](build(ROPE, d_head=8), shared, case)
    out = made.parts[0].call()
    assert [t.shape for t in out] == [(1, 16, 16)]
    assert all(p.grad is None for p in shared.layer.parameters())
    assert shared.x(5)[0].grad is None


def test_a_backward_call_is_both_directions() -> None:
    config = Config((ROPE,), (64,), what=("rotation", "attention", "layer"), heads=2, d_head=8, backward=(False, True),
                    repetitions=3)  # fmt: skip
    found = {(r.case.what, r.case.spec.scheme, r.case.implementation, r.case.backward): r for r in records(config)}
    for (*key, backward), r in found.items():
        assert not r.skipped
        if backward:
            assert r.peak_bytes > found[(*key, False)].peak_bytes, key


def test_inputs_smaller_than_the_cache_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config((ROPE,), (16,), heads=2, d_head=8, repetitions=3)
    case = Case(ROPE, 16, what="rotation", implementation="eager")
    assert len(Shared(case, config).qkv(0)) == 1
    pair = 2 * 2 * 16 * 8 * 4
    monkeypatch.setattr(benchmark_parts, "l2_bytes", lambda device: int(1.6 * pair))
    shared = Shared(case, config)
    assert len(shared.qkv(0)) == len(shared.qkv(1)) == len(shared.x(5)) == 4
    assert len({t.data_ptr() for t in shared.qkv(0)}) == 4
    seen = []
    call = benchmark_parts.in_turn(Operation(lambda q: (seen.append(q.data_ptr()),)), [shared.qkv(0)], None)
    for _ in range(8):
        call()
    assert seen == [t.data_ptr() for t in shared.qkv(0)] * 2


def test_a_repeated_rotation_in_place_keeps_its_inputs_and_its_norm() -> None:
    yarn = parse_spec({"scheme": "rope", "scaling": "yarn", "factor": 32.0})
    config = Config((yarn,), (16,), heads=2, d_head=8, repetitions=3)
    case = Case(yarn, 16, what="rotation", implementation="in_place")
    shared = Shared(case, config)
    before = shared.qkv(0)[0].clone()
    made = PARTS["rotation"](build(yarn, d_head=8), shared, case)
    call = made.parts[0].call
    first = call()[0].norm()
    for _ in range(200):
        last = call()[0]
    assert last.norm() == pytest.approx(float(first), rel=1e-4)
    assert torch.equal(shared.qkv(0)[0], before)
    assert made.parts[0].check() < 3e-7  # with the factor


def test_every_device_and_dtype_gets_the_same_numbers() -> None:
    config = Config((ROPE,), (16,), heads=2, d_head=8, repetitions=3)
    wide, narrow = Shared(Case(ROPE, 16), config), Shared(Case(ROPE, 16, dtype="bfloat16"), config)
    later = Shared(Case(ROPE, 16), config)
    assert torch.equal(later.qkv(2)[0], wide.qkv(2)[0])  # in whatever order they are asked for
    assert torch.equal(wide.qkv(0)[0].bfloat16(), narrow.qkv(0)[0])
    assert torch.equal(wide.layer.out.weight.bfloat16(), narrow.layer.out.weight)
    assert not torch.equal(wide.qkv(0)[0], wide.qkv(1)[0])


def test_a_hybrid_is_the_mean_of_its_layers() -> None:
    spec = SCHEMES["hybrid"](layers=(parse_spec({"scheme": "learned"}), ROPE, ROPE, ALIBI))
    config = Config((spec,), (16,), heads=2, d_head=16, repetitions=3)
    made = bench(Case(spec, 16), config)
    assert sorted(p.weight for p in made.parts) == [0.25, 0.25, 0.25, 0.5]  # the fourth is the embedding, once
    assert made.notes == ["mean over 4 layers"]
    made = bench(Case(spec, 16, what="attention"), config)
    assert sorted(p.weight for p in made.parts) == [0.25, 0.25, 0.5]


def test_a_result_leaves_the_inputs_alone() -> None:
    x = draw(2, 3, 5, 4)
    kept = x.clone()
    doubled = Operation(lambda t: (t.mul_(2),), lambda t: t, lambda t: t, overwrites=True)
    assert torch.equal(result(doubled, [x], None)[0], 2 * kept)
    call = benchmark_parts.in_turn(doubled, [[x]], None)
    call()
    assert torch.equal(x, kept)


def test_two_calls_that_give_the_same_tensor_are_not_building(monkeypatch: pytest.MonkeyPatch) -> None:
    made = torch.zeros(3)
    monkeypatch.setattr(benchmark_parts, "_makers", lambda *_, **__: [lambda positions: made])
    with pytest.raises(Skip, match="building cannot be timed"):
        bench(Case(ROPE, 16, what="tables_built"), Config((ROPE,), (16,), repetitions=3))
