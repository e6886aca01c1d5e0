"""A spec as PyTorch source that runs by itself: only torch, the formula written out, numbers as in posenc_core."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent, indent

from posenc_core.frequencies import attention_scales
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec
from posenc_core.schemes.t5 import T5Spec
from posenc_core.spec import Spec


def source(spec: Spec, name: str = "") -> str | None:
    """Functions of one scheme, `name` behind each of theirs, without the imports; None if there is no template.

    rope: inv_freq(seq_len), cos_sin(positions, seq_len), rotate(x, positions, seq_len), score_factor. alibi:
    bias(q_positions, k_positions), t5 as well. sinusoidal, learned, integer: vectors(positions), embed(x, positions).
    """
    make = _SOURCES.get(type(spec))
    return None if make is None else dedent(make(spec)).strip("\n").replace("@", name) + "\n"


def _rope(spec: RopeSpec) -> str:
    scales, dim = attention_scales(spec), spec.rotary_dim
    plain = "base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)"
    body = "\n".join(_FREQUENCIES[spec.scaling](spec)).replace("PLAIN", plain)
    first, second, joined = {
        "half": (f"[..., :{dim // 2}]", f"[..., {dim // 2}:{dim}]", "torch.cat([first, second], dim=-1)"),
        "interleaved": (f"[..., 0:{dim}:2]", f"[..., 1:{dim}:2]", "torch.stack([first, second], dim=-1).flatten(-2)"),
    }[spec.layout]
    length = "int(positions.max()) + 1 if seq_len is None else seq_len" if spec.by_length else "None"
    head = f"base, dim = {spec.base!r}, {dim}"
    return f'''
def inv_freq@(seq_len=None):
    """Radians a position, float64 [{dim // 2}], of a sequence of seq_len positions."""
    {head}
{indent(body, "    ")}


attention_factor@ = {scales.tables!r}  # multiplies cos and sin
score_factor@ = {scales.scores!r}  # multiplies q·k / sqrt(head dim)


def cos_sin@(positions, seq_len=None):
    """cos and sin, float64 [L, {dim // 2}]; seq_len None: the sequence ends at the largest position."""
    angle = positions.to(torch.float64)[:, None] * inv_freq@({length})
    return angle.cos() * attention_factor@, angle.sin() * attention_factor@


def rotate@(x, positions, seq_len=None):
    """Queries or keys [..., L, {spec.d_head}] at positions [L], turned; the result has x's dtype."""
    wide = x if x.dtype == torch.float64 else x.float()  # half precision is rotated in float32
    cos, sin = (t.to(wide.dtype) for t in cos_sin@(positions, seq_len))
    a, b = wide{first}, wide{second}
    first, second = a * cos - b * sin, b * cos + a * sin
    return torch.cat([{joined}.to(x.dtype), x[..., {dim}:]], dim=-1)
'''


def _by_parts(spec: RopeSpec) -> list[str]:
    lines = [
        "w = PLAIN",
        f"factor, trained = {spec.factor!r}, {spec.original_max_position_embeddings}",
        f"beta_fast, beta_slow = {spec.beta_fast!r}, {spec.beta_slow!r}",
    ]
    if spec.ramp == "rotations":
        lines += [
            "turns = w * trained / (2 * math.pi)",
            "share = 1 - ((turns - beta_slow) / max(beta_fast - beta_slow, 1e-9)).clamp(0, 1)",
        ]
    else:
        rounded = ("math.floor({})", "math.ceil({})") if spec.truncate else ("{}", "{}")
        index = "dim * math.log(trained / ({} * 2 * math.pi)) / (2 * math.log(base))"
        lines += [
            f"low = max({rounded[0].format(index.format('beta_fast'))}, 0)",
            f"high = min({rounded[1].format(index.format('beta_slow'))}, dim - 1)",
            "high = high if high != low else high + 0.001",
            "share = ((torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)",
        ]
    return [*lines, "return w * (1 - share) + w / factor * share"]


def _dynamic(spec: RopeSpec) -> list[str]:
    trained = spec.original_max_position_embeddings
    length = "factor * trained" if spec.dynamic_length == "maximum" else "max(seq_len or 0, trained)"
    return [
        f"factor, trained = {spec.factor!r}, {trained}",
        f"length = {length}",
        "base *= (factor * length / trained - (factor - 1)) ** (dim / (dim - 2))",
        "return PLAIN",
    ]


def _longrope(spec: RopeSpec) -> list[str]:
    pairs = spec.rotary_dim // 2

    def listed(values: tuple[float, ...], default: float) -> str:
        return f"[{', '.join(map(repr, values))}]" if values else f"[{default!r}] * {pairs}"

    return [
        f"short = {listed(spec.short_factor, 1.0)}",
        f"long = {listed(spec.long_factor, spec.factor)}",
        f"divisor = long if seq_len is not None and seq_len > {spec.original_max_position_embeddings} else short",
        "return PLAIN / torch.tensor(divisor, dtype=torch.float64)",
    ]


def _llama3(spec: RopeSpec) -> list[str]:
    low, high = spec.low_freq_factor, spec.high_freq_factor
    kept = f"((turns - {low!r}) / {high - low!r}).clamp(0, 1)" if high > low else f"(turns >= {high!r}).double()"
    return [
        "w = PLAIN",
        f"turns = w * {spec.original_max_position_embeddings} / (2 * math.pi)",
        f"kept = {kept}",
        f"return w * kept + w / {spec.factor!r} * (1 - kept)",
    ]


def _proportional(spec: RopeSpec) -> list[str]:
    return [
        f"w = PLAIN / {spec.factor!r}",
        f"w[{spec.rotated_pairs}:] = 0  # the slowest pairs do not turn",
        "return w",
    ]


_FREQUENCIES: dict[str, Callable[[RopeSpec], list[str]]] = {
    "none": lambda spec: ["return PLAIN"],
    "linear": lambda spec: [f"return PLAIN / {spec.factor!r}"],
    "ntk": lambda spec: [f"base *= {spec.factor!r} ** (dim / (dim - 2))", "return PLAIN"],
    "ntk_by_parts": _by_parts,
    "dynamic": _dynamic,
    "yarn": _by_parts,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


def _alibi(spec: AlibiSpec) -> str:
    if spec.slopes:
        made = f"    return torch.tensor([{', '.join(map(repr, spec.slopes))}], dtype=torch.float64)"
    else:
        made = indent(dedent(f"""
            n_heads = {spec.n_heads}
            lower = 2 ** int(math.log2(n_heads))
            steps = [2.0 ** (-8 * (i + 1) / lower) for i in range(lower)]
            between = [2.0 ** (-8 * (i + 1) / (2 * lower)) for i in range(0, 2 * lower, 2)]
            return torch.tensor(steps + between[: n_heads - lower], dtype=torch.float64)
            """).strip(), "    ")  # fmt: skip
    causal = "masked_fill(distance < 0, -torch.inf)  # no key after its query"
    last = f"return out.{causal}" if spec.variant == "causal" else "return out"
    return f'''
def slopes@():
    """One slope a head, float64 [{spec.n_heads}]."""
{made}


def bias@(q_positions, k_positions):
    """What is added to q·k / sqrt(head dim): float64 [{spec.n_heads}, Lq, Lk]."""
    distance = q_positions.to(torch.float64)[:, None] - k_positions.to(torch.float64)[None, :]
    out = -slopes@()[:, None, None] * distance.abs()
    {last}
'''


def _t5(spec: T5Spec) -> str:
    buckets, heads = spec.relative_attention_num_buckets, spec.n_heads
    half = buckets // 2 if spec.bidirectional else buckets
    side, back = (
        (f"(distance > 0).long() * {half}", "distance.abs()")
        if spec.bidirectional
        else ("torch.zeros_like(distance)", "(-distance).clamp(min=0)")
    )
    far, near = spec.relative_attention_max_distance, half // 2
    return f'''
table@ = torch.nn.Parameter(torch.randn({buckets}, {heads}))  # the first layer's; all layers of a stack share it


def bucket@(distance):
    """The row of each distance k - q, int64."""
    side, back = {side}, {back}
    wide = (back.clamp(min=1).float() / {near}).log() / math.log({far} / {near})
    wide = ({near} + (wide * {half - near}).long()).clamp(max={half - 1})
    return side + torch.where(back < {near}, back, wide)


def bias@(q_positions, k_positions):
    """What is added to q·k, which T5 does not divide by sqrt(head dim): [{heads}, Lq, Lk]."""
    return table@[bucket@(k_positions.long()[None, :] - q_positions.long()[:, None])].movedim(-1, 0)
'''


_EMBED = '''
def embed@(x, positions):
    """Token embeddings [..., L, {width}] before the first layer, with positions [L]."""
    return x + vectors@(positions).to(x.dtype)
'''


def _sinusoidal(spec: SinusoidalSpec) -> str:
    pairs = spec.d_model // 2
    exponent = f"torch.arange({pairs}, dtype=torch.float64) / {pairs - 1 if spec.endpoint and pairs > 1 else pairs}"
    joined = {
        "interleaved": "torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)",
        "concatenated": "torch.cat([angle.sin(), angle.cos()], dim=-1)",
    }[spec.layout]
    return f'''
def vectors@(positions):
    """float64 [L, {spec.d_model}]."""
    angle = positions.to(torch.float64)[:, None] * {spec.base!r} ** -({exponent})
    return {joined}

{_EMBED.format(width=spec.d_model)}'''


def _learned(spec: LearnedSpec) -> str:
    return f'''
table@ = torch.nn.Parameter(torch.randn({spec.max_position_embeddings}, {spec.d_model}) * 0.02)


def vectors@(positions):
    """[L, {spec.d_model}]; IndexError for a position that has no row."""
    return table@[positions.long() + {spec.offset}]

{_EMBED.format(width=spec.d_model)}'''


def _integer(spec: IntegerSpec) -> str:
    length, width = spec.max_position_embeddings, spec.d_model
    made = {
        "raw": f"positions.to(torch.float64)[:, None].expand(-1, {width})",
        "normalized": f"(positions.to(torch.float64) / {length - 1})[:, None].expand(-1, {width})",
        "one_hot": f"torch.eye({min(length, width)}, {width}, dtype=torch.float64)[positions.long()]",
    }[spec.variant]
    return f'''
def vectors@(positions):
    """float64 [L, {width}]."""
    return {made}

{_EMBED.format(width=width)}'''


_SOURCES: dict[type[Spec], Callable[..., str]] = {
    NoneSpec: lambda spec: "# Nothing is added or turned here: attention is as it is without positions.",
    RopeSpec: _rope,
    AlibiSpec: _alibi,
    SinusoidalSpec: _sinusoidal,
    LearnedSpec: _learned,
    IntegerSpec: _integer,
    T5Spec: _t5,
}
