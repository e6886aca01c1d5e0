"""Pictures, numbers and sentences of the Config page: a model's encoding, kind by kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from explorer import state
from explorer.charts import curves
from explorer.charts.curves import NOTE_COLOUR
from explorer.charts.palette import CATEGORICAL
from explorer.facts import Fact, short
from explorer.pictures.common import Lines
from explorer.text import SCHEME_TEXT, Try
from explorer.words import plain
from posenc_core import LayerEncoding, ModelEncoding, Spec, SpecError
from posenc_core.export_config import reach_of
from posenc_core.frequencies import Action, attention_scales, pair_report
from posenc_core.rotary import cos_sin
from posenc_core.schemes import SCHEMES
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.t5 import T5Spec

MAX_LINES = 4  # kinds drawn in one chart
MAX_SAID = 8  # kinds told one by one
MAX_CELLS = 256  # layers drawn
OTHERS = "other kinds"
MAX_FINDINGS = 60
FIRST_ROWS = (0, 1, 2, 100)  # positions whose cos and sin are listed
DIGITS = {"4": ".4g", "8": ".8g"}
MAX_LAYERS_TEXT = 60
ACTIONS: dict[Action, str] = {
    "kept": "kept", "ramped": "ramped", "divided": "divided", "zero": "standing still",
}  # fmt: skip
UNSCALED_TARGET = 4  # times the longest context, where a link asks how far an unscaled model reaches
MAX_TARGET = 2**24  # of the Extension page
# What to do with an export, by target.
HOW: dict[str, str] = {
    "transformers": "Merge the fields into the model's config.json.",
    "transformers_legacy": "Merge the fields into the model's config.json.",
    "vllm": "Give the option to `vllm serve`, with `--max-model-len` as long as the context.",
    "llama_cpp": "Give the options to `llama-server` or `llama-cli`, with `-c` as long as the context.",
    "pytorch": "Runs by itself, with torch alone.",
    "npz": "Read it with `numpy.load`: inv_freq, the first rows of cos and sin, the factors of tables and scores.",
}


@dataclass(frozen=True)
class Kind:
    """Layers that do the same: a name, the first of them, all of them, a colour."""

    name: str
    layer: LayerEncoding
    layers: tuple[int, ...]
    colour: str

    @property
    def spec(self) -> Spec:
        """What they do."""
        return self.layer.spec

    @property
    def rope(self) -> RopeSpec | None:
        """The rotation, if they rotate."""
        return self.spec if isinstance(self.spec, RopeSpec) else None


@dataclass(frozen=True)
class Model:
    """A model's encoding with its kinds of layers, which take a walk over the layers to find."""

    encoding: ModelEncoding
    kinds: tuple[Kind, ...]

    @property
    def several(self) -> bool:
        """Whether layers differ."""
        return len(self.kinds) > 1

    @property
    def ropes(self) -> list[tuple[Kind, RopeSpec]]:
        """The kinds that rotate."""
        return [(k, k.rope) for k in self.kinds if k.rope is not None]


def model(encoding: ModelEncoding) -> Model:
    """The encoding with its different kinds of layers: what reaches furthest first, then in the order of the layers."""
    made, taken, different = list[Kind](), set[str](), sorted(encoding.kinds, key=lambda kind: _nearness(kind[0]))
    for index, (layer, layers) in enumerate(different):
        type_name = f"{layer.layer_type}: " if layer.layer_type and len(different) > 1 else ""
        name = f"{type_name}{describe(layer.spec, layer.head_dim)}"
        if name in taken:
            name += f" ({index + 1})"
        taken.add(name)
        made.append(Kind(name, layer, layers, CATEGORICAL[index % len(CATEGORICAL)]))
    return Model(encoding, tuple(made))


def _nearness(layer: LayerEncoding) -> int:
    """Sorts layers that rotate before others, those that see everything before a window, scaled before plain."""
    if not isinstance(layer.spec, RopeSpec):
        return 3
    if layer.window is not None:
        return 2
    return 1 if layer.spec.scaling == "none" else 0


def scheme_name(spec: Spec) -> str:
    """The scheme's name, also of one that is read from configs and not offered in the sidebar."""
    return SCHEME_TEXT[spec.scheme].name if spec.scheme in SCHEME_TEXT else spec.scheme.upper()


def describe(spec: Spec, head_dim: int) -> str:
    """A spec in a few words: RoPE, base 500,000, llama3 factor 8."""
    if isinstance(spec, RopeSpec):
        turned = spec.rotary_dim if spec.scaling != "proportional" else 2 * spec.rotated_pairs
        part = f", {turned} of {head_dim} features" if turned < head_dim else ""
        scaled = f", {spec.scaling} factor {spec.factor:g}" if spec.scaling != "none" else ""
        return f"RoPE, base {spec.base:,.10g}{part}{scaled}"
    if isinstance(spec, AlibiSpec):
        return f"ALiBi, {spec.n_heads} heads"
    if isinstance(spec, LearnedSpec):
        offset = f", row {spec.offset} first" if spec.offset else ""
        return f"learned table, {spec.max_position_embeddings:,} rows{offset}"
    if isinstance(spec, T5Spec):
        return f"T5, {spec.relative_attention_num_buckets} buckets up to {spec.relative_attention_max_distance:,} apart"
    return scheme_name(spec)


def pairs_in_words(spec: RopeSpec) -> str:
    """What the scaling does to the pairs: 29 pairs kept, 6 ramped, 29 divided; empty without a scaling."""
    if spec.scaling == "none":
        return ""
    original = spec.original_max_position_embeddings
    made = pair_report(spec, original * max(2, int(spec.factor)) if spec.by_length else None)
    counts = [f"{made.count(a)} {w}" for a, w in ACTIONS.items() if made.count(a)]
    said = ", ".join([counts[0].replace(" ", " pairs ", 1), *counts[1:]])
    return f"{said} past {original:,} positions" if spec.by_length else said


def answer(model: Model) -> str:
    """One line of Markdown: the model, its layers by kind, and what each kind does."""
    encoding, total = model.encoding, len(model.encoding.layers)
    name = f"**{plain(encoding.model_type)}**: " if encoding.model_type else ""
    if not encoding.counted:
        kinds = "; ".join(f"{plain(k.layer.layer_type) or 'layer'}: {_said(k)}" for k in model.kinds[:MAX_SAID])
        return f"{name}number of layers not given, {kinds if model.several else _said(model.kinds[0])}."
    if not model.several:
        return f"{name}{f'{total:,} layers, all ' if total > 1 else ''}{_said(model.kinds[0])}."
    parts = [f"{len(k.layers):,} × {plain(k.layer.layer_type) or 'layer'} ({_said(k)})" for k in model.kinds[:MAX_SAID]]
    parts += [f"and {len(model.kinds) - MAX_SAID:,} more kinds"] if len(model.kinds) > MAX_SAID else []
    return f"{name}{total:,} layers: {', '.join(parts)}."


def _said(kind: Kind) -> str:
    words = describe(kind.spec, kind.layer.head_dim)
    words += f", window {kind.layer.window:,}" if kind.layer.window else ""
    pairs = pairs_in_words(kind.rope) if kind.rope is not None else ""
    return f"{words}: {pairs}" if pairs else words


def findings(model: Model, level: str) -> str:
    """The findings of one level as a list in Markdown; empty without any."""
    return "\n".join(
        f"- **{plain(f.code)}**: {plain(f.sentence)} {plain(f.action)}"
        for f in model.encoding.findings[:MAX_FINDINGS]
        if f.level == level
    )


def key_numbers(model: Model) -> list[Fact]:
    """Three to five numbers of a model."""
    longest = _longest(model)
    count = f"{len(model.encoding.layers):,}" if model.encoding.counted else "not given"
    facts = [
        ("layers", count, "of the model; where the config gives no number, one a kind is shown below"),
        ("kinds of layers", f"{len(model.kinds):,}", "that differ in scheme, parameters, head size or window"),
        (
            "longest context",
            f"{longest:,}" if longest else "not said",
            "the larger of max_position_embeddings and of factor times the original length, in tokens",
        ),
    ]
    if trained := _trained(model):
        facts.append(("before scaling", f"{trained:,}", "length before the extension, in tokens"))
    if model.ropes:
        slowest = max(float(2 * np.pi / w[w > 0].min()) for w in (s.inv_freq(longest) for _, s in model.ropes))
        meaning = "positions for a full turn of the slowest pair that turns, after scaling, over all layers"
        facts.append(("slowest pair", short(slowest), meaning))
    return facts


def _longest(model: Model) -> int | None:
    """max_position_embeddings, or what a factor makes of the original length where that is more."""
    reached = [reach_of(s) for _, s in model.ropes if s.scaling != "dynamic"]
    return max([model.encoding.max_position_embeddings or 0, *reached]) or None


def _trained(model: Model) -> int | None:
    """The length before a scaling; None where nothing is scaled or nothing says it."""
    scaled = [s for _, s in model.ropes if s.scaling != "none"]
    if not scaled:
        return None
    told = [s.original_max_position_embeddings for s in scaled
            if s.applies(s.param("original_max_position_embeddings"))]  # fmt: skip
    return model.encoding.original_max_position_embeddings or (told[0] if told else None)


# ---------------------------------------------------------------- pictures


def layer_strip(model: Model) -> tuple[pd.DataFrame, tuple[tuple[str, str], ...]]:
    """A cell for each of the first layers, and their kinds with their colours."""
    kind_of = {i: k for k in model.kinds for i in k.layers if i < MAX_CELLS}
    series = {k.name: k.colour for k in model.kinds[:MAX_SAID]}
    rows = [
        {"layer": i, "end": i + 1, "series": k.name if k.name in series else OTHERS, "note": note(model, i)}
        for i, k in sorted(kind_of.items())
    ]
    if any(row["series"] == OTHERS for row in rows):
        series[OTHERS] = NOTE_COLOUR
    return pd.DataFrame(rows), tuple(series.items())


def note(model: Model, index: int) -> str:
    """What the config says of one layer besides."""
    return model.encoding.layers[index].note or "-"


def seen_strip(model: Model) -> str:
    """What the cells are."""
    total = len(model.encoding.layers)
    if not model.encoding.counted:
        return "One cell a kind of layer, coloured by what it does: how many there are the config does not give."
    which = f"of the first {MAX_CELLS:,} of {total:,} layers" if total > MAX_CELLS else "a layer"
    return f"One cell {which}, coloured by what it does."


def spectrum_lines(model: Model) -> tuple[Lines, tuple[str, ...]] | None:
    """Wavelength of every pair, before scaling (dashed) and after; None where no layer rotates."""
    frames, series, dashed = list[pd.DataFrame](), dict[str, str](), list[str]()
    for index, (kind, spec) in enumerate(model.ropes[:MAX_LINES]):
        for name, inv_freq, before in _spectra(model, kind, spec):
            if name in series:
                name += f" ({index + 1})"
            waves = 2 * np.pi / np.where(inv_freq > 0, inv_freq, np.nan)
            frames.append(curves.line(name, np.arange(len(waves)), waves))
            series[name] = kind.colour
            if before:
                dashed.append(name)
    if not frames:
        return None
    frames += [curves.guide(f"{label} ({length:,})", y=length) for label, length in lengths(model)]
    return Lines(curves.together(*frames), tuple(series.items()), "wavelength (positions)"), tuple(dashed)


def _spectra(model: Model, kind: Kind, spec: RopeSpec) -> Iterable[tuple[str, np.ndarray[Any, Any], bool]]:
    """(name, radians a position, whether it is the one before scaling) of a kind's lines."""
    if spec.scaling == "none":
        yield kind.name, spec.inv_freq().numpy(), False
        return
    original, prefix = pair_report(spec).original.numpy(), f"{kind.layer.layer_type}, " if model.several else ""
    yield f"{prefix}before scaling", original, True
    if not spec.by_length:
        yield f"{prefix}{spec.scaling} factor {spec.factor:g}", spec.inv_freq().numpy(), False
        return
    trained = spec.original_max_position_embeddings
    longest = max(model.encoding.max_position_embeddings or 0, int(spec.factor * trained), trained + 1)
    if not np.array_equal(within := spec.inv_freq(trained).numpy(), original):
        yield f"{prefix}up to {trained:,} positions", within, False
    yield f"{prefix}at {longest:,} positions", spec.inv_freq(longest).numpy(), False


def lengths(model: Model) -> list[tuple[str, int]]:
    """Lengths worth a mark: the one before the extension, and the longest."""
    trained, longest = _trained(model), _longest(model)
    marks = [("before the extension", trained)] if trained and trained != longest else []
    return [(label, length) for label, length in [*marks, ("longest context", longest)] if length]


def seen_spectrum(model: Model) -> str:
    """What the wavelengths say, counted."""
    marks = lengths(model)
    if not marks:
        return "Every point is a pair: the higher, the more positions it takes for a full turn."
    label, length = marks[0]
    parts = []
    for kind, spec in model.ropes[:MAX_LINES]:
        before = pair_report(spec).original
        slow = int((2 * np.pi / before > length).sum())
        parts.append(f"{plain(kind.layer.layer_type) + ': ' if model.several else ''}{slow} of {len(before)} pairs")
    words = "the length before the extension" if label.startswith("before") else "the longest context"
    return (
        f"Pairs above a dashed line never finish a turn within that length. Before scaling, within {length:,} "
        f"({words}): {'; '.join(parts)}."
    )


def slope_lines(model: Model) -> Lines | None:
    """Slopes of ALiBi's heads; None without any."""
    for kind in model.kinds:
        if isinstance(kind.spec, AlibiSpec):
            slopes = kind.spec.slope_tensor().numpy()
            frame = curves.line(kind.name, np.arange(len(slopes)), np.where(slopes > 0, slopes, np.nan))
            return Lines(frame, ((kind.name, kind.colour),), "slope (score per position)")
    return None


# ---------------------------------------------------------------- tables and lists


def span(indices: Sequence[int]) -> str:
    """Indices as ranges: 0-4, 6-10."""
    runs = list[list[int]]()
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return text if len(text) <= MAX_LAYERS_TEXT else text[: MAX_LAYERS_TEXT - 1] + "…"


def table(model: Model) -> pd.DataFrame:
    """The effective parameters, one row a kind of layer; columns that say nothing are left out."""
    made = pd.DataFrame([_row(kind) for kind in model.kinds]).fillna("").astype(str)
    return made.loc[:, (made != "").any()]


def _row(kind: Kind) -> dict[str, str]:
    spec, layer = kind.spec, kind.layer
    row = {
        "layers": span(kind.layers), "layer type": layer.layer_type, "scheme": scheme_name(spec),
        "head dim": str(layer.head_dim), "window": f"{layer.window:,}" if layer.window else "",
    }  # fmt: skip
    if isinstance(spec, RopeSpec):
        scales = attention_scales(spec)
        row |= {
            "base": f"{spec.base:,.10g}", "rotary dim": str(spec.rotary_dim), "layout": spec.layout,
            "scaling": spec.scaling, "pairs": pairs_in_words(spec),
            "attention factor": f"{scales.attention_factor:.7g}", "score factor": f"{scales.scores:.7g}",
        }  # fmt: skip
    shown = {"d_head", "base", "layout", "scaling", "scheme"}
    row["further"] = ", ".join(
        f"{k} = {v if len(v) <= 40 else v[:39] + '…'}" for k, v in spec.to_query().items() if k not in shown
    )
    return row | {"note": layer.note}


def listed(values: Iterable[float], digits: str) -> str:
    """Numbers as a JSON list: the shortest text that reads back as the same float64, or so many digits."""
    spec = DIGITS.get(digits)
    return "[" + ", ".join(json.dumps(float(v)) if spec is None else f"{float(v):{spec}}" for v in values) + "]"


def expected(spec: RopeSpec, digits: str) -> list[tuple[str, str]]:
    """What a port has to have: (name, list) of the frequencies, and for those that follow the length, of both ends."""
    if not spec.by_length:
        return [("inv_freq", listed(spec.inv_freq().tolist(), digits))]
    trained = spec.original_max_position_embeddings
    longest = max(int(spec.factor * trained), trained + 1)
    return [
        (f"inv_freq of a sequence of up to {trained:,} positions", listed(spec.inv_freq(trained).tolist(), digits)),
        (f"inv_freq of a sequence of {longest:,} positions", listed(spec.inv_freq(longest).tolist(), digits)),
    ]


def first_rows(spec: RopeSpec, digits: str) -> str:
    """cos and sin at the first positions, attention factor included, as lines of name = list."""
    positions = torch.tensor(FIRST_ROWS)
    made = cos_sin(positions, spec.inv_freq(), dtype=torch.float64, attention_factor=attention_scales(spec).tables)
    return "\n".join(
        f"{name}[{p}] = {listed(row.tolist(), digits)}"
        for name, table in zip(("cos", "sin"), made, strict=True)
        for p, row in zip(FIRST_ROWS, table, strict=True)
    )


# ---------------------------------------------------------------- links


def usable(page: str, query: dict[str, str]) -> bool:
    """Whether a link would open as it is written; a config can hold more than the sidebar takes."""
    return state.read_link(page, {name: [text] for name, text in query.items()})[1] == ()


def uses(model: Model, kind: int = 0) -> list[Try]:
    """Links that take the model to the other pages; of several kinds Extension and Porting get the numbered one."""
    encoding, out = model.encoding, list[Try]()
    whole = _whole(encoding)
    if whole is not None and usable("encodings", query := whole.to_query()):
        what = "these layers" if whole.scheme == "hybrid" else "this encoding"
        out.append(Try(f"{what} in the sidebar, on the Encodings page", query, page="encodings"))
    asked = model.kinds[kind : kind + 1]
    taken = next((k for k in (*asked, *model.kinds) if k.rope and usable("encodings", k.rope.to_query())), None)
    if taken is None or taken.rope is None:
        return out
    query, which = taken.rope.to_query(), f" ({plain(taken.layer.layer_type)})" if model.several else ""
    if trained := trained_length(model, taken):
        longest = max(_longest(model) or 0, trained)
        longest = min(longest if longest > trained else UNSCALED_TARGET * trained, MAX_TARGET)
        reach = {"trained_length": str(trained), "target_length": str(longest)}
        reach |= {"method": "chosen"} if taken.rope.scaling != "none" else {}
        if usable("extension", query | reach):
            label = f"how far it reaches: Extension{which}, from {trained:,} to {longest:,} positions"
            out.append(Try(label, query | reach, page="extension"))
    port = Try(f"compare a port's numbers with it{which}", query | {"part": "fingerprint"}, page="porting")
    second = {f"b_{name}": value for name, value in query.items()} | {"part": "compare"}
    beside = Try(f"put it beside the sidebar's scheme, pair by pair{which}", second, page="porting")
    return [*out, port, beside]


def trained_length(model: Model, kind: Kind) -> int | None:
    """The length that a kind of layers knew before its scaling: its window, its original length, or what its factor
    makes of the longest context; that itself where nothing is scaled. None where the config does not say."""
    spec, longest = kind.rope, model.encoding.max_position_embeddings
    if kind.layer.window:
        return kind.layer.window
    if spec is None or spec.scaling == "none":
        return longest
    if spec.applies(spec.param("original_max_position_embeddings")):
        return spec.original_max_position_embeddings
    return None if longest is None else max(1, int(longest / spec.factor))


def _whole(encoding: ModelEncoding) -> Spec | None:
    """One spec for the whole model; None where the sidebar has none that holds its layers."""
    try:
        made = encoding.spec
    except SpecError:
        return None
    return made if made.scheme in SCHEMES else None


def kind_tries(model: Model) -> list[Try]:
    """A link to each kind's encoding alone."""
    out = dict[Spec, Try]()
    for kind in model.kinds:
        query = kind.spec.to_query()
        if len(out) < MAX_LINES and kind.spec.scheme in SCHEMES and usable("encodings", query):
            does = describe(kind.spec, kind.layer.head_dim)
            out.setdefault(kind.spec, Try(f"layers {span(kind.layers)} alone: {does}", query, page="encodings"))
    return list(out.values())
