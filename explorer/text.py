"""Words of the app: names, formulae and papers of the schemes, the story of the start page, presets, theory notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from explorer.scaling_text import scaling_formula
from posenc_core import Spec
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec


@dataclass(frozen=True)
class Paper:
    """Where a scheme comes from."""

    authors: str
    year: int
    title: str
    url: str

    @property
    def markdown(self) -> str:
        """A linked citation."""
        return f"[{self.authors} {self.year}, *{self.title}*]({self.url})"


@dataclass(frozen=True)
class SchemeText:
    """What a reader is told about a scheme: a name, the formula in LaTeX, one sentence, the paper."""

    name: str
    formula: str
    sentence: str
    paper: Paper


SCHEME_TEXT: dict[str, SchemeText] = {
    "none": SchemeText(
        "No position (NoPE)",
        r"s_{mn} = \frac{q_m \cdot k_n}{\sqrt{d}}",
        "Nothing tells attention where a token stands; only the causal mask tells early from late.",
        Paper(
            "Kazemnejad et al.", 2023, "The Impact of Positional Encoding on Length Generalization in Transformers",
            "https://arxiv.org/abs/2305.19466",
        ),
    ),
    "integer": SchemeText(
        "Integer positions",
        r"x_p \leftarrow x_p + p, \qquad x_p + \tfrac{p}{L-1}, \qquad x_p + e_p",
        "The index itself is added to the token: simple, and wrong in three ways that the pictures show. "
        "Nobody's proposal; the waves came instead, in",
        Paper("Vaswani et al.", 2017, "Attention Is All You Need", "https://arxiv.org/abs/1706.03762"),
    ),
    "sinusoidal": SchemeText(
        "Sinusoidal",
        r"\begin{gathered} PE_{p,2i} = \sin\!\left(p\,\theta^{-2i/d}\right) \\ "
        r"PE_{p,2i+1} = \cos\!\left(p\,\theta^{-2i/d}\right) \end{gathered}",
        "Each position is a set of clock hands, from fast to slow, added to the token once.",
        Paper("Vaswani et al.", 2017, "Attention Is All You Need", "https://arxiv.org/abs/1706.03762"),
    ),
    "learned": SchemeText(
        "Learned table",
        r"x_p \leftarrow x_p + T_{p + \mathrm{offset}}, \qquad T \in \mathbb{R}^{L \times d}",
        "One trained vector a position, added to the token; past the last row there is nothing.",
        Paper(
            "Gehring et al.", 2017, "Convolutional Sequence to Sequence Learning", "https://arxiv.org/abs/1705.03122"
        ),
    ),
    "rope": SchemeText(
        "RoPE",
        r"\begin{gathered} s_{mn} = \frac{(R_m q_m) \cdot (R_n k_n)}{\sqrt{d}} "
        r"= \frac{q_m \cdot R_{n-m} k_n}{\sqrt{d}} \\[4pt] "
        r"R_m \text{ turns pair } i \text{ by } m\,\omega_i \\ \omega_i = \theta^{-2i/d} \end{gathered}",
        "Pairs of query and key features turn with the position, so that a score sees only how far apart they are.",
        Paper(
            "Su et al.", 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding",
            "https://arxiv.org/abs/2104.09864",
        ),
    ),
    "alibi": SchemeText(
        "ALiBi",
        r"s_{mn} = \frac{q_m \cdot k_n}{\sqrt{d}} - \mu_h\,(m - n)",
        "Every head subtracts its own slope times the distance from each score.",
        Paper(
            "Press et al.", 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input Length "
            "Extrapolation", "https://arxiv.org/abs/2108.12409",
        ),
    ),
    "hybrid": SchemeText(
        "Hybrid",
        r"\text{layer } \ell:\ \text{scheme}_\ell",
        "A different scheme in each layer, such as RoPE with no position in every fourth layer.",
        Paper(
            "Yang et al.", 2025, "RoPE to NoPE and Back Again: A New Hybrid Attention Strategy",
            "https://arxiv.org/abs/2501.18795",
        ),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Try:
    """A link that changes parameters: what it is called, what it sets, what the reader will see change."""

    label: str
    changes: Mapping[str, str]
    then: str = ""
    page: str | None = None


@dataclass(frozen=True)
class Step:
    """One step of the story: what was missing, what came, and the page that shows it."""

    title: str
    sentence: str
    link: str
    page: str
    query: dict[str, str]


INTRODUCTION = (
    "Attention by itself does not know the order of its tokens; a positional encoding tells it. "
    "Pick a scheme and its parameters on the left and see what it gives to each position, how scores fall with "
    "distance, what a trained model makes of it, and what it costs. "
    "What is chosen is in the address, so every picture is a link; every number is computed, here or in a recorded run "
    "that says so."
)

STORY: tuple[Step, ...] = (
    Step(
        "Attention sees a set",
        "Without positions and without a mask, shuffling the tokens only shuffles the output.",
        "Shuffle a text under NoPE", "attention", {"scheme": "none", "order": "shuffled"},
    ),
    Step(
        "Count the positions",
        "The plain index grows without bound, and a table of indices ends.",
        "Watch the index grow", "encodings", {"scheme": "integer"},
    ),
    Step(
        "Bound it with waves",
        "Sines and cosines keep every value in [-1, 1], and a shift becomes a linear map.",
        "See the waves", "encodings", {"scheme": "sinusoidal"},
    ),
    Step(
        "Or learn it",
        "A trained table fits the data, and has no row past its length.",
        "See where a table ends", "encodings", {"scheme": "learned"},
    ),
    Step(
        "Rotate instead of adding",
        "Added positions mix with content in the projections; rotated ones leave scores that know only the distance.",
        "Compare the residuals", "decay", {"scheme": "rope", "b_scheme": "sinusoidal"},
    ),
    Step(
        "Or penalise distance",
        "ALiBi subtracts a slope times the distance and keeps working past the training length.",
        "Run both past their training", "attention",
        {"scheme": "alibi", "b_scheme": "rope", "source": "held_out", "length": "1024"},
    ),
    Step(
        "Stretch what was trained",
        "Larger bases and scaled frequencies let RoPE reach further than it was trained.",
        "Base 10,000 against 500,000", "encodings",
        {"scheme": "rope", "d_head": "128", "b_scheme": "rope", "b_d_head": "128", "b_base": "500000"},
    ),
    Step(
        "Mix schemes by layer",
        "Recent models drop positions in some layers and rotate in the others.",
        "RoPE first, no position after", "attention", {"scheme": "hybrid", "layers": "rope, none"},
    ),
)  # fmt: skip

PRESETS: dict[str, dict[str, str]] = {
    "RoPE, the paper's (base 10,000)": {"scheme": "rope", "layout": "interleaved"},
    "RoPE, linear ×4 (PI)": {"scheme": "rope", "d_head": "128", "scaling": "linear", "factor": "4"},
    "RoPE, NTK ×4": {"scheme": "rope", "d_head": "128", "scaling": "ntk", "factor": "4"},
    "RoPE, YaRN ×4": {"scheme": "rope", "d_head": "128", "scaling": "yarn", "factor": "4"},
    "p-RoPE, three quarters of the spectrum": {
        "scheme": "rope", "d_head": "128", "scaling": "proportional", "rotary_fraction": "0.75",
    },
    "ALiBi, 8 heads (the paper's)": {"scheme": "alibi"},
    "ALiBi, 12 heads (no power of two)": {"scheme": "alibi", "n_heads": "12"},
    "Sinusoidal, the paper's (d_model 512)": {"scheme": "sinusoidal", "d_model": "512"},
    "Learned, RoBERTa's offset": {"scheme": "learned", "max_position_embeddings": "514", "offset": "2"},
    "Hybrid, ALiBi first and RoPE after": {"scheme": "hybrid"},
    "Hybrid, NoPE every 2nd layer": {"scheme": "hybrid", "layers": "rope, none"},
    "Hybrid, NoPE every 4th layer": {"scheme": "hybrid", "layers": "rope*3, none"},
    "No position": {"scheme": "none"},
}  # fmt: skip

COMPARISONS: dict[str, dict[str, str]] = {
    "RoPE base 10,000 against 500,000": {"scheme": "rope", "b_scheme": "rope", "b_base": "500000"},
    "RoPE against ALiBi": {"scheme": "rope", "b_scheme": "alibi"},
}

ENCODING_SEEN: dict[str, str] = {
    "none": "Nothing is added anywhere: every position looks the same to attention.",
    "embed": "Each column is the vector that is added to the token at that position.",
    "rotate": "Each row is one pair of features turning: fast at the top, slow at the bottom.",
    "bias": "Each row is a query: the darker a key, the more is taken off its score.",
}

# Each sets the scheme, so that its other parameters are the defaults and what the sentence promises happens.
ENCODING_TRIES: dict[str, tuple[Try, ...]] = {
    "none": (Try("give the positions a rotation", {"scheme": "rope"}, "Rows of waves appear, one for each pair."),),
    "integer": (
        Try(
            "one-hot positions", {"scheme": "integer", "variant": "one_hot", "seq_len": "256"},
            "One diagonal, and nothing past the table.",
        ),
        Try(
            "normalized positions", {"scheme": "integer", "variant": "normalized", "seq_len": "128"},
            "All values lie between 0 and 1.",
        ),
    ),
    "sinusoidal": (
        Try("a base of 100", {"scheme": "sinusoidal", "base": "100"}, "The slow half wakes up: more dimensions turn."),
        Try(
            "the concatenated order", {"scheme": "sinusoidal", "layout": "concatenated"},
            "Sines move to the top half, cosines to the bottom.",
        ),
    ),
    "learned": (
        Try(
            "twice the table's length", {"scheme": "learned", "seq_len": "256"},
            "The right half is hatched: no row was ever trained.",
        ),
        Try(
            "RoBERTa's offset of 2", {"scheme": "learned", "offset": "2", "seq_len": "128"},
            "Everything moves two positions to the left, and the last two have no row.",
        ),
    ),
    "rope": (
        Try("base 500,000", {"scheme": "rope", "base": "500000"}, "More of the slow pairs hardly move."),
        Try(
            "rotate a quarter of the head", {"scheme": "rope", "rotary_fraction": "0.25"},
            "A quarter of the pairs is left.",
        ),
        Try(
            "p-RoPE, three quarters of the spectrum",
            {"scheme": "rope", "scaling": "proportional", "rotary_fraction": "0.75"},
            "The slowest quarter stands still.",
        ),
    ),
    "alibi": (
        Try(
            "12 heads", {"scheme": "alibi", "n_heads": "12"},
            "The last four slopes start again, steeper than the first: the order is not monotonic.",
        ),
        Try(
            "both directions", {"scheme": "alibi", "variant": "symmetric"},
            "The hatched half fills with the mirrored penalty.",
        ),
    ),
    "hybrid": (
        Try(
            "NoPE every fourth layer", {"scheme": "hybrid", "layers": "rope*3, none", "layer": "3"},
            "Layer 3 has nothing to show.",
        ),
    ),
}  # fmt: skip


def formula_of(spec: Spec) -> str:
    """The scheme's formula as its parameters have it."""
    text = SCHEME_TEXT[spec.scheme].formula
    if isinstance(spec, RopeSpec):
        text = text.replace(r"\omega_i = \theta^{-2i/d}", scaling_formula(spec))
        sections = ",".join(map(str, spec.mrope_section))
        alternate = r" \text{ alternating}" if spec.mrope_interleaved else ""
        rows = rf" \\ \text{{time, height, width: }} {sections}{alternate} \end{{gathered}}"
        return text.replace(r" \end{gathered}", rows) if sections else text
    if isinstance(spec, AlibiSpec) and spec.variant == "symmetric":
        return text.replace("(m - n)", "|m - n|")
    if isinstance(spec, IntegerSpec):
        return {"raw": r"x_p + p", "normalized": r"x_p + \tfrac{p}{L-1}", "one_hot": r"x_p + e_p"}[spec.variant]
    if isinstance(spec, SinusoidalSpec):
        if spec.endpoint:
            text = text.replace("-2i/d", "-i/(d/2-1)")
        if spec.layout == "concatenated":
            text = text.replace("{p,2i+1}", "{p,i+d/2}").replace("{p,2i}", "{p,i}")
    return text
