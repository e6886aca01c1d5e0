"""What several core tests share: reference files, strategies made from Params, oracles by another route."""

from __future__ import annotations

import cmath
import json
import math
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st

from posenc_core import SCHEMES, SpecError, build

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
SIZES = {"d_model": 32, "d_head": 16, "n_heads": 4, "max_position_embeddings": 32}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: not run on CUDA")


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
    raise NotImplementedError(f"no strategy for a field of kind {p.kind}")


@st.composite
def specs(draw, cls, **fixed):
    """Legal specs of one class."""
    if cls.hook == "layers":
        return cls(layers=draw(layer_lists()))
    fields = {p.name: p for p in cls.params()}
    few = draw(st.integers(1, 8))  # the items of a list field, which are one a head
    drawn = {"n_heads": few} if "n_heads" in fields else {}
    drawn |= {n: draw(values(p, few)) for n, p in fields.items() if n not in drawn}
    drawn |= fixed
    for n, p in fields.items():
        if p.when is not None and drawn[p.when[0]] not in p.when[1]:
            del drawn[n]
    try:
        return cls(**drawn)
    except SpecError as error:
        for problem in error.problems:
            drawn.pop(problem.name, None)
    try:
        return cls(**drawn)
    except SpecError:
        assume(False)


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


def frequencies(spec):
    """A rope spec's frequencies from the papers' formulas, in Python floats."""
    d, base, s = spec.d_head, spec.base, spec.factor
    share = int(d * spec.rotary_fraction)
    if spec.scaling == "proportional":
        return [base ** (-2 * i / d) / s if i < share // 2 else 0.0 for i in range(d // 2)]
    if spec.scaling == "ntk":
        base *= s ** (share / (share - 2))
    plain = [base ** (-2 * i / share) for i in range(share // 2)]
    return [w / s for w in plain] if spec.scaling == "linear" else plain


def pairs(spec):
    """The features (first, second) of each pair, and its frequency."""
    w = frequencies(spec)
    r = len(w)
    return [((i, i + r) if spec.layout == "half" else (2 * i, 2 * i + 1), w[i]) for i in range(r)]


def rotation_matrix(spec, position):
    """[D, D] float64: one 2×2 rotation a pair, the identity elsewhere."""
    out = torch.eye(spec.d_head, dtype=torch.float64)
    for (a, b), w in pairs(spec):
        c, s = math.cos(position * w), math.sin(position * w)
        out[a, a], out[a, b], out[b, a], out[b, b] = c, -s, s, c
    return out


def rotate_complex(spec, vector, position):
    """One head vector as a list of floats, each pair times e^(i·p·w)."""
    out = list(vector)
    for (a, b), w in pairs(spec):
        z = complex(vector[a], vector[b]) * cmath.exp(1j * position * w)
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
                x = torch.stack([rotation_matrix(spec, p) @ row for p, row in zip(qp, x, strict=True)])
                y = torch.stack([rotation_matrix(spec, p) @ row for p, row in zip(kp, y, strict=True)])
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
