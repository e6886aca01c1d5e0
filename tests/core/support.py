"""What several core tests share: reference files, strategies made from Params, oracles by another route."""

from __future__ import annotations

import cmath
import json
import math
import signal
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st

from posenc_core import SCHEMES, SpecError, build, rotary
from posenc_core.schemes.hybrid import MAX_TEXT
from posenc_core.schemes.rope import RopeSpec

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
SIZES = {"d_model": 32, "d_head": 16, "n_heads": 4, "max_position_embeddings": 32}
needs_cxx = pytest.mark.skipif(rotary.compiler() is None, reason="no C++ compiler: the fused rotation cannot be built")


def reference(name):
    return json.loads((DATA / name).read_text())


@contextmanager
def within(seconds):
    """TimeoutError instead of a hang."""

    def stop(*_):
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# ------------------------------------------------------------------ specs drawn from their Params


def values(p, count=None):
    """Legal values of one Param."""
    if p.kind == "choice":
        return st.sampled_from(p.choices)
    if p.kind == "bool":
        return st.booleans()
    if p.kind == "int":
        step = int(p.step or 1)
        return st.integers(-(-int(p.minimum) // step), int(p.maximum) // step).map(lambda n: n * step)
    number = st.floats(p.minimum, p.maximum, allow_nan=False)
    if p.kind == "float":
        return number | st.sampled_from(p.ticks) if p.ticks else number
    if p.kind == "floats":
        return st.just(()) | st.lists(number, min_size=count, max_size=count).map(tuple)
    if p.kind == "ints":
        return st.just(()) | st.lists(st.integers(0, 4), min_size=3, max_size=3).map(tuple)
    raise NotImplementedError(f"no strategy for a field of kind {p.kind}")


@st.composite
def specs(draw, cls, **fixed):
    """Legal specs of one class."""
    if cls.hook == "layers":
        spec = cls(layers=draw(layer_lists()))
        assume(len(spec.field_text("layers")) <= MAX_TEXT)  # long lists of divisors do not fit the notation's bound
        return spec
    fields = {p.name: p for p in cls.params()}
    few = draw(st.integers(1, 8))  # the items of a list field, which are one a head
    drawn = {"n_heads": few} if "n_heads" in fields else {}
    drawn |= {n: draw(values(p, few)) for n, p in fields.items() if n not in drawn}
    drawn |= fixed
    for n, p in fields.items():
        if p.when is not None and drawn.get(p.when[0]) not in p.when[1]:
            del drawn[n]
    if cls is RopeSpec:
        _fit_together(drawn)
    try:
        return cls(**drawn)
    except SpecError as error:
        for problem in error.problems:
            drawn.pop(problem.name, None)
    try:
        return cls(**drawn)
    except SpecError:
        assume(False)


def _fit_together(drawn):
    """Make drawn rope fields legal beside each other: lists of one number a pair, sums, ordered thresholds."""
    pairs = int(drawn["d_head"] * (1 if drawn["scaling"] == "proportional" else drawn["rotary_fraction"])) // 2
    for name in ("short_factor", "long_factor"):
        if drawn.get(name):
            drawn[name] = tuple(islice(cycle(drawn[name]), pairs))
    if drawn["mrope_section"]:
        first, second, *_ = drawn["mrope_section"]
        drawn["mrope_section"] = (first, second, pairs - first - second)
    for low, high in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
        if low in drawn and high in drawn:
            drawn[low], drawn[high] = sorted((drawn[low], drawn[high]))


def sized(cls):
    """A scheme's module of the sizes that its default reads."""
    read = {p.name for p in cls().params() if cls().applies(p)}
    return build(cls(), **{k: v for k, v in SIZES.items() if k in read or cls.hook == "layers"})


def plain_schemes(*hooks):
    return [c for c in SCHEMES.values() if c.hook != "layers" and (not hooks or c.hook in hooks)]


@st.composite
def layer_lists(draw):
    first = draw(st.sampled_from(plain_schemes()).flatmap(specs))
    later = st.sampled_from(plain_schemes("none", "rotate", "bias")).flatmap(specs)
    pool = [first, *draw(st.lists(later, max_size=3))]
    return (first, *draw(st.lists(st.sampled_from(pool), max_size=6)))


def any_spec():
    return st.sampled_from(list(SCHEMES.values())).flatmap(specs)


# ------------------------------------------------------------------ oracles


def frequencies(spec, seq_len=None):
    """A rope spec's frequencies for a sequence of that length, from the papers' formulas, in Python floats."""
    base, s, trained = spec.base, spec.factor, spec.original_max_position_embeddings
    share = int(spec.d_head * spec.rotary_fraction)
    n = share // 2
    if spec.scaling == "proportional":
        pairs = range(spec.d_head // 2)
        return [base ** (-2 * i / spec.d_head) / s if i < n else 0.0 for i in pairs]
    plain = [base ** (-2 * i / share) for i in range(n)]
    if spec.scaling == "linear":
        return [w / s for w in plain]
    if spec.scaling in ("ntk", "dynamic"):  # the first pair is kept, the last divided by s, the rest geometric between
        if spec.scaling == "dynamic":
            length = s * trained if spec.dynamic_length == "maximum" else max(seq_len or trained, trained)
            s = s * length / trained - s + 1
        return [w / s ** (i / (n - 1)) for i, w in enumerate(plain)]
    if spec.scaling == "longrope":
        long = seq_len is not None and seq_len > trained
        divisors = (spec.long_factor or [s] * n) if long else (spec.short_factor or [1.0] * n)
        return [w / d for w, d in zip(plain, divisors, strict=True)]
    if spec.scaling == "llama3":
        return [_llama3(spec, w) for w in plain]
    if spec.scaling in ("ntk_by_parts", "yarn"):
        ramp = _by_turns if spec.ramp == "rotations" else _by_index
        shares = [ramp(spec, i, share) for i in range(n)]
        return [w * (1 - x) + w / s * x for w, x in zip(plain, shares, strict=True)]
    return plain


def _llama3(spec, w):
    """By wavelength, as in Meta's code."""
    trained, low, high = spec.original_max_position_embeddings, spec.low_freq_factor, spec.high_freq_factor
    wavelength = 2 * math.pi / w
    if wavelength < trained / high:
        return w
    if wavelength > trained / low or low == high:
        return w / spec.factor
    smooth = (trained / wavelength - low) / (high - low)
    return (1 - smooth) * w / spec.factor + smooth * w


def _by_turns(spec, i, dim):
    """1 - γ of the YaRN paper's equation 18, from the turns r of pair i in the original length."""
    turns = spec.original_max_position_embeddings / (2 * math.pi * spec.base ** (2 * i / dim))
    if turns > spec.beta_fast:
        return 0.0
    return 1.0 if turns < spec.beta_slow else (spec.beta_fast - turns) / (spec.beta_fast - spec.beta_slow)


def _by_index(spec, i, dim):
    """The authors' code: linear in i between the indices of a pair with beta_fast and one with beta_slow turns."""
    trained = spec.original_max_position_embeddings
    fast, slow = (math.log(trained / (2 * math.pi * b), spec.base) * dim / 2 for b in (spec.beta_fast, spec.beta_slow))
    if spec.truncate:
        fast, slow = math.floor(fast), math.ceil(slow)
    fast, slow = max(fast, 0), min(slow, dim - 1)
    return min(max((i - fast) / ((slow - fast) or 0.001), 0.0), 1.0)


def attention_factor(spec):
    """Of the method: YaRN's g(s), DeepSeek's quotient, LongRoPE's square root; else 1."""
    s, trained = spec.factor, spec.original_max_position_embeddings
    if spec.scaling == "longrope":
        return spec.attention_factor or math.sqrt(1 + math.log(s, trained))
    if spec.scaling != "yarn":
        return 1.0
    up, down = (spec.mscale, spec.mscale_all_dim) if spec.mscale and spec.mscale_all_dim else (1.0, 0.0)
    return spec.attention_factor or (1 + up * math.log(s) / 10) / (1 + down * math.log(s) / 10)


def scales(spec):
    """(what multiplies cos and sin, what multiplies the scores besides)."""
    factor, extra = attention_factor(spec), (1 + spec.mscale_all_dim * math.log(spec.factor) / 10) ** 2
    return (factor, extra) if spec.attention_on == "cos_sin" else (1.0, extra * factor**2)


def length(*positions):
    """The length of a sequence that holds these positions: the largest, rounded down, plus 1."""
    return math.floor(max(float(p.max()) for p in positions)) + 1


def pairs(spec, seq_len=None):
    """The features (first, second) of each pair, and its frequency."""
    w = frequencies(spec, seq_len)
    r = len(w)
    return [((i, i + r) if spec.layout == "half" else (2 * i, 2 * i + 1), w[i]) for i in range(r)]


def rotation_matrix(spec, position, seq_len=None):
    """[D, D] float64: one 2×2 rotation a pair times the attention factor on cos and sin, the identity elsewhere."""
    out, factor = torch.eye(spec.d_head, dtype=torch.float64), scales(spec)[0]
    for (a, b), w in pairs(spec, seq_len):
        c, s = factor * math.cos(position * w), factor * math.sin(position * w)
        out[a, a], out[a, b], out[b, a], out[b, b] = c, -s, s, c
    return out


def rotate_complex(spec, vector, position, seq_len=None):
    """One head vector as a list of floats, each pair times the attention factor on cos and sin and e^(i·p·w)."""
    out, factor = list(vector), scales(spec)[0]
    for (a, b), w in pairs(spec, seq_len):
        z = complex(vector[a], vector[b]) * factor * cmath.exp(1j * position * w)
        out[a], out[b] = z.real, z.imag
    return out


def recipe_slopes(n):
    """ALiBi slopes as the paper's appendix writes them: start and ratio 2^(-8/n), recursion for other counts."""
    if math.log2(n).is_integer():
        ratio = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [ratio * ratio**i for i in range(n)]
    closest = 2 ** math.floor(math.log2(n))
    return recipe_slopes(closest) + recipe_slopes(2 * closest)[0::2][: n - closest]


def plain_attention(spec, q, k, v, q_positions, k_positions, *, causal=True, mask=None):
    """Attention by explicit loops over batch and head, float64; spec is a single layer's."""
    batch, heads, lq, d = q.shape
    group, lk = heads // k.shape[1], k.shape[2]
    out = torch.zeros(batch, heads, lq, v.shape[-1], dtype=torch.float64)
    weights = torch.zeros(batch, heads, lq, lk, dtype=torch.float64)
    for b in range(batch):
        qp = (q_positions if q_positions.dim() == 1 else q_positions[b]).tolist()
        kp = (k_positions if k_positions.dim() == 1 else k_positions[b]).tolist()
        for h in range(heads):
            x, y = q[b, h].double(), k[b, h // group].double()
            if spec.hook == "rotate":
                n, scale = length(q_positions, k_positions), scales(spec)[1]
                x = torch.stack([scale * rotation_matrix(spec, p, n) @ row for p, row in zip(qp, x, strict=True)])
                y = torch.stack([rotation_matrix(spec, p, n) @ row for p, row in zip(kp, y, strict=True)])
            for i in range(lq):
                scores = {}
                for j in range(lk):
                    late = causal and j > i + lk - lq
                    if late or (mask is not None and not mask.expand(batch, heads, lq, lk)[b, h, i, j]):
                        continue
                    score = float(x[i] @ y[j]) / math.sqrt(d)
                    if spec.hook == "bias":
                        if spec.scheme != "alibi":
                            raise NotImplementedError(f"no oracle for the bias of {spec.scheme}")
                        if spec.variant == "causal" and kp[j] > qp[i]:
                            continue
                        slope = spec.slopes[h] if spec.slopes else recipe_slopes(spec.n_heads)[h]
                        score -= slope * abs(qp[i] - kp[j])
                    scores[j] = score
                top = max(scores.values())
                total = sum(math.exp(s - top) for s in scores.values())
                for j, s in scores.items():
                    weights[b, h, i, j] = math.exp(s - top) / total
                    out[b, h, i] += weights[b, h, i, j] * v[b, h // group, j].double()
    return out, weights
