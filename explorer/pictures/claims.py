"""Pictures and sentences of the Claims page."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from explorer.charts import curves
from explorer.charts.palette import BLACK, CATEGORICAL, GREEN, ORANGE, SCHEME_COLOURS, VERMILLION, contrast
from explorer.charts.verdicts import COLUMNS
from explorer.compute.claims import Judged
from explorer.pictures.common import SHARES, Lines, count
from explorer.text import Try
from explorer.views import ClaimsView
from explorer.words import plain
from posenc_core import Problem, Spec, benchmark
from posenc_core.claims import Claim, Number, Verdict, amount
from posenc_core.lab import MEASURED, Result, Run, Setting, label, metric_of, scheme_text, setting_mapping
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.tasks import TEXTS


class Sign(NamedTuple):
    """How a verdict is told: a cell's sign, an icon and Streamlit's colour beside the word, a cell's colour."""

    sign: str
    icon: str
    colour: str
    fill: str
    meaning: str


SIGNS: dict[Verdict, Sign] = {
    "holds": Sign("✓", "check_circle", "green", GREEN, "claims that hold as they are said"),
    "holds with a condition": Sign(
        "✓*", "rule", "orange", ORANGE, "claims that hold only under a condition, which stands beside the verdict"
    ),
    "does not hold": Sign("✗", "cancel", "red", VERMILLION, "claims that the measurement contradicts"),
    "not measured": Sign("?", "help", "gray", BLACK, "claims whose runs were not all made yet, on this server"),
}
FIRST_NUMBERS = 2  # of a claim, in its row
SHORT_NAME = 11  # characters of a name of which a phone shows three in a row
LONG_NAME = 16  # of which it shows two
LEGEND_ROW = 22  # px
INKS = ("#000000", "#ffffff")  # of text on a cell


def series_name(verdict: Verdict) -> str:
    """A verdict with its sign, as legends have it."""
    return f"{SIGNS[verdict].sign} {verdict}"


SERIES = tuple((series_name(v), s.fill) for v, s in SIGNS.items())


def badge(verdict: Verdict) -> str:
    """A verdict in Markdown: icon, word, colour."""
    s = SIGNS[verdict]
    return f":{s.colour}-badge[:material/{s.icon}: {verdict}]"


def key_numbers(judged: Sequence[Judged]) -> list[tuple[str, str, str]]:
    """How many claims have each verdict."""
    counts = Counter(j.judgement.verdict for j in judged)
    return [(v, f"{counts[v]} of {len(judged)}", s.meaning) for v, s in SIGNS.items()]


def summary(judged: Sequence[Judged]) -> str:
    """One sentence on all of them."""
    counts = Counter(j.judgement.verdict for j in judged)
    measured = len(judged) - counts["not measured"]
    return (
        f"Claims measured: {measured}. As they are said: {counts['holds']}; under a condition: "
        f"{counts['holds with a condition']}; not at all: {counts['does not hold']}. Click a cell to open its claim."
    )


# ------------------------------------------------------------------ which claims


def schemes_of(claim: Claim, runs: Sequence[Run] = ()) -> frozenset[str]:
    """The schemes that a claim is about: those of its link, and of the runs that it needs."""
    return frozenset(_schemes(claim, runs))


def _schemes(claim: Claim, runs: Sequence[Run]) -> Iterator[str]:
    yield from (claim.query[n] for n in ("scheme", "b_scheme") if n in claim.query)
    for run in runs:
        yield from _names(run.spec)


def _names(spec: Spec) -> Iterator[str]:
    yield spec.scheme
    if isinstance(spec, HybridSpec):
        yield from (layer.scheme for layer in spec.layers)


def fitting(judged: Sequence[Judged], view: ClaimsView, specs: Sequence[Spec]) -> list[Judged]:
    """The claims that the filters leave; `specs` are the sidebar's."""
    wanted = {name for spec in specs for name in _names(spec)}
    out = []
    for j in judged:
        c = j.claim
        text = f"{c.number} {c.name} {c.sentence} {c.reference} {c.experiment} {j.judgement.condition}".lower()
        if (
            view.verdict in ("any", j.judgement.verdict)
            and view.source_kind in ("any", c.source)
            and (view.about == "all" or wanted & schemes_of(c, j.runs))
            and all(word in text for word in view.words.lower().split())
        ):
            out.append(j)
    return out


def ink(fill: str) -> str:
    """The colour in which text on a fill is read best."""
    return max(INKS, key=lambda colour: contrast(colour, fill))


def cells(judged: Sequence[Judged], fits: Sequence[Judged], chosen: int) -> tuple[pd.DataFrame, int]:
    """Rows for charts.verdicts, and how many rows of cells there are."""
    kept = {j.claim.number for j in fits}
    rows = [
        {
            "column": index % COLUMNS, "row": index // COLUMNS, "number": j.claim.number,
            "sign": SIGNS[j.judgement.verdict].sign, "series": series_name(j.judgement.verdict),
            "ink": ink(SIGNS[j.judgement.verdict].fill), "sentence": j.claim.sentence,
            "fits": j.claim.number in kept, "chosen": j.claim.number == chosen,
        }
        for index, j in enumerate(judged)
    ]  # fmt: skip
    return pd.DataFrame(rows), -(-len(rows) // COLUMNS)


# ------------------------------------------------------------------ one claim in words


def said(number: Number) -> str:
    """A number with its name, in Markdown; beside it what the claim says, and how far it differs."""
    return f"{plain(number.name)}: **{plain(amount(number.value, number.unit))}**{plain(beside(number))}"


def beside(number: Number) -> str:
    """What stands after a number."""
    parts = [f"claimed: {number.claimed}"] if number.claimed else []
    parts += (
        [f"{number.apart} {amount(float(f'{number.spread:.2g}'), number.unit).split(' ')[0]}"] if number.spread else []
    )
    return f" ({'; '.join(parts)})" if parts else ""


def numbers_text(judged: Judged) -> str:
    """All numbers in one line."""
    return "; ".join(f"{n.name}: {amount(n.value, n.unit)}{beside(n)}" for n in judged.judgement.numbers)


def first_numbers(judged: Judged) -> list[Number]:
    """The numbers that stand in a claim's row: those that the claim itself gives before the others."""
    return sorted(judged.judgement.numbers, key=lambda n: not n.claimed)[:FIRST_NUMBERS]


def verdict_line(judged: Judged) -> str:
    """The verdict, and the condition that it hangs on."""
    condition = judged.judgement.condition
    return badge(judged.judgement.verdict) + (f" {plain(condition)}" if condition else "")


def origin(judged: Judged) -> str:
    """Where a claim's numbers come from."""
    parts = [recorded(judged.results, judged.runs, judged.here)] if judged.runs else []
    if judged.timed is not None:
        parts.append(f"Recorded: {benchmark.machine_line(dict(judged.timed))}.")
    return " ".join(parts) or COMPUTED


COMPUTED = (
    "Computed here, now, on this machine; the experiment's page shows the same thing as a picture, with numbers of its "
    "own for what is drawn there."
)


def recorded(results: Sequence[Result], runs: Sequence[Run], here: frozenset[str]) -> str:
    """Where and when the results were made, and how many of the runs were not; `here` are keys of this server's own."""
    parts = []
    shipped, own = ([r for r in results if (r.key in here) == mine] for mine in (False, True))
    for what, some in (("Recorded", shipped), ("Made on this server", own)):
        if some:
            dates = sorted(str(r.machine["date"])[:10] for r in some)
            when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
            where = dict.fromkeys(benchmark.machine_line({**r.machine, "load": None, "date": when}) for r in some)
            of = f"{count(len(some), 'run')} of {count(len({r.seed for r in some}), 'seed')}"
            parts.append(f"{what}: {of}, {' and '.join(where)}.")
    if len(results) < len(runs):
        parts.append(f"Not made yet: {len(runs) - len(results)} of {count(len(runs), 'run')}.")
    return " ".join(parts)


def table(judged: Sequence[Judged]) -> pd.DataFrame:
    """Every claim with its verdict and numbers, one row a claim."""
    rows = [
        (
            j.claim.number, j.claim.sentence, j.claim.source, j.claim.reference, j.claim.experiment, numbers_text(j),
            j.judgement.verdict, j.judgement.condition, origin(j),
        )
        for j in judged
    ]  # fmt: skip
    columns = ["claim", "sentence", "source", "reference", "experiment", "measured", "verdict", "condition", "origin"]
    return pd.DataFrame(rows, columns=columns)


# ------------------------------------------------------------------ one claim as a picture


class Panel(NamedTuple):
    """Lines of one task, those of them that are dashed, and columns of the legend and height in px that they need.

    told: which lines' values at which training lengths are told in numbers.
    """

    task: str
    lines: Lines
    dashed: tuple[str, ...]
    columns: int
    height: int
    told: tuple[tuple[int, str], ...]


def axis(task: str) -> tuple[float, float] | None:
    """Ends of the axis where they do not follow the data: those of shares."""
    return None if task in TEXTS else SHARES


def panels(judged: Judged) -> list[Panel]:
    """Loss (or accuracy, where the task has right answers) at multiples of the training length, a panel a task."""
    tasks = dict.fromkeys(r.setting.task for r in judged.results)
    points = judged.claim.decided_at
    return [_panel(task, [r for r in judged.results if r.setting.task == task], points) for task in tasks]


def _panel(task: str, results: Sequence[Result], points: Sequence[int]) -> Panel:
    metric = metric_of(task)
    groups = dict[str, list[Result]]()
    for result, name in zip(results, names(results), strict=True):
        groups.setdefault(in_legend(name), []).append(result)
    frames = list[pd.DataFrame]()
    for name, each in groups.items():
        values = np.array([[r.at(times, metric) for times in MEASURED] for r in each])
        frames.append(curves.band(name, MEASURED, values.min(0), values.max(0)))
        frames.append(curves.line(name, MEASURED, values.mean(0), values.min(0), values.max(0)))
    style = styles({name: each[0] for name, each in groups.items()})
    series = tuple((name, style[name][0]) for name in groups)
    dashed = tuple(name for name in groups if style[name][1])
    title = "held-out loss (nats a byte)" if metric == "loss" else "accuracy"
    lines = Lines(curves.together(*frames, curves.guide("trained", x=1.0)), series, title)
    longest = max(map(len, groups))
    columns = 3 if longest <= SHORT_NAME else 2 if longest <= LONG_NAME else 1
    told = tuple((n, name) for n in points for name, each in groups.items() if each[0].setting.extension == "off"
                 or each[0].setting.times == n or len(points) == 1)  # fmt: skip
    return Panel(task, lines, dashed, columns, 330 + LEGEND_ROW * -(-len(series) // columns), told)


def in_legend(name: str) -> str:
    """An extension's name as short as a phone's legend needs it; `seen_panel` says what is left out."""
    return re.sub(r"PI \((linear)\) (×\d+)|, (\d+) steps$", lambda m: f"linear {m[2]}" if m[1] else f", {m[3]}", name)


def styles(first: Mapping[str, Result]) -> dict[str, tuple[str, bool]]:
    """Colour and whether it is dashed of each name, by one of its results.

    A scheme has its own colour, as everywhere. What is made of a scheme by an extension or another way of training is
    dashed: in the scheme's colour if it is the only one, else in one that is free.
    """
    plain_names = dict[str, str]()
    for name, r in sorted(first.items(), key=lambda item: len(item[1].setting.to_query())):
        plain_names.setdefault(scheme_text(r.spec), name)
    colours = dict[str, str]()
    bare_first = sorted(plain_names.items(), key=lambda item: item[0] not in SCHEME_COLOURS and "+" not in item[0])
    for _, name in bare_first:
        colours[name] = _free(colours, SCHEME_COLOURS[first[name].spec.scheme])
    many = {name for i, (_, name) in enumerate(bare_first) if i >= len(CATEGORICAL)}
    variants = {n: plain_names[scheme_text(r.spec)] for n, r in first.items() if n not in colours}
    for name, origin_name in variants.items():
        alone = list(variants.values()).count(origin_name) == 1
        colours[name] = colours[origin_name] if alone else _free(colours)
    return {name: (colours[name], name in variants or name in many) for name in first}


def _free(taken: Mapping[str, str], *wanted: str) -> str:
    """The first colour that nobody has; where all are taken they come again."""
    free = [c for c in (*wanted, *CATEGORICAL) if c not in taken.values()]
    return free[0] if free else CATEGORICAL[len(taken) % len(CATEGORICAL)]


def names(results: Sequence[Result]) -> list[str]:
    """What each result is called: its scheme and extension, and the settings in which the results differ.

    Variations of the only scheme among them go without its name.
    """
    settings = [setting_mapping(r.setting) for r in results]
    told = {"extension", "times", "finetune_steps"}  # by the label
    every = {name for s in settings for name in s} - told
    varied = sorted(n for n in every if len({s.get(n) for s in settings}) > 1)
    schemes = {scheme_text(r.spec) for r in results}
    made = [
        ", ".join([extension_name(r.label), *(f"{n.replace('_', ' ')} {s[n]}" for n in varied if n in s)])
        for r, s in zip(results, settings, strict=True)
    ]
    return [n.removeprefix(f"{min(schemes)}, ") for n in made] if len(schemes) == 1 else made


def seen_panel(panel: Panel) -> str:
    """What is drawn, and the lines' values in numbers where the claim is decided."""
    data = panel.lines.data
    line = data[(data["part"] == "line") & data["y"].notna()]
    value = {(int(x), name): y for x, name, y in zip(line["x"], line["series"], line["y"], strict=True)}
    parts = []
    for n in dict.fromkeys(n for n, _ in panel.told):
        found = sorted((value[n, name], name) for m, name in panel.told if m == n and (n, name) in value)
        if found:
            where = "At the training length" if n == 1 else f"At {n} times"
            parts.append(f" {where}: " + ", ".join(f"{plain(name)} **{y:.2f}**" for y, name in found) + ".")
    series = [name for name, _ in panel.lines.series]
    words = ["linear is position interpolation (PI)"] if any("linear ×" in n for n in series) else []
    words += ["after the comma stand steps of fine-tuning"] if any(re.search(r"×\d+, \d+$", n) for n in series) else []
    parts += [f" Of the names: {'; '.join(words)}."] if words else []
    return (
        f"Task {plain(panel.task)}: {panel.lines.y_title} at multiples of the training length, mean over the seeds, "
        "band from the lowest seed to the highest." + "".join(parts)
    )


# ------------------------------------------------------------------ words of the page


def reference(claim: Claim) -> str:
    """Where a claim stands, in Markdown; papers by their arXiv numbers are links."""
    parts = re.split(r"arXiv:(\d{4}\.\d{5})", claim.reference)
    return "".join(
        f"[arXiv:{part}](https://arxiv.org/abs/{part})" if index % 2 else plain(part)
        for index, part in enumerate(parts)
    )


def said_by(claim: Claim) -> str:
    """The kind of source and the reference, which may name the kind itself, in Markdown."""
    return reference(claim) if claim.source in claim.reference else f"{claim.source}: {reference(claim)}"


def statement(claim: Claim) -> str:
    """Number, sentence, where it stands, and what is measured, in Markdown."""
    return f"**{claim.number}. {plain(claim.sentence)}**  \n:gray[{said_by(claim)}]  \n{plain(claim.experiment)}"


def findings(judged: Judged) -> str:
    """The verdict with its condition, then the first numbers, in Markdown."""
    told = list(map(said, first_numbers(judged)))
    left = len(judged.judgement.numbers) - len(told)
    return f"{verdict_line(judged)}\n\n:small[{' · '.join([*told, *([f'and {left} more'] if left else [])])}]"


def details(judged: Judged) -> str:
    """Where a claim stands, how it is tested, what was found and the rule of the verdict, in Markdown."""
    claim = judged.claim
    lines = [
        f"**Said by:** {said_by(claim)}",
        f"**Experiment:** {plain(claim.experiment)}",
        *(
            [f"**Measured**\n{numbers}"]
            if (numbers := "\n".join(f"- {said(n)}" for n in judged.judgement.numbers))
            else []
        ),
        *([f"**Rule:** {plain(rule)}"] if (rule := rule_of(claim)) else []),
    ]
    return "\n\n".join(lines)


def rule_of(claim: Claim) -> str:
    """How the verdict follows from the numbers: what its judge says of itself, thresholds by their values."""
    rule = getattr(claim.judge, "rule", claim.judge)
    values = getattr(rule, "__globals__", {})

    def value(name: re.Match[str]) -> str:
        found = values.get(name[0])
        return amount(found) if isinstance(found, int | float) else name[0]

    return re.sub(r"\b[A-Z][A-Z_]+\b", value, inspect.getdoc(rule) or "")


def neighbours(judged: Judged, numbers: Sequence[int]) -> list[tuple[str, int]]:
    """The claim before and the claim after, as far as there are any, with the words of their links."""
    at = list(numbers).index(judged.claim.number)
    out = [("Claim before", numbers[at - 1])] if at else []
    return out + ([("Next claim", numbers[at + 1])] if at + 1 < len(numbers) else [])


def no_claim(asked: object, numbers: Sequence[int]) -> Problem:
    """What is said of a link to a claim that is not there."""
    return Problem("claim", asked, f"0 for none, or one of {', '.join(map(str, numbers))}", "there is none")


def experiment(query: Mapping[str, str], here: Mapping[str, str]) -> dict[str, str]:
    """The query of a link to an experiment. `here` are the sidebar's values, which stay where it names no scheme."""
    kept = {n: t for n, t in here.items() if n == "go" or "scheme" not in query}
    return kept | dict(query)


def experiments(judged: Judged) -> list[tuple[str, dict[str, str]]]:
    """What a claim is measured by: a name and the query of a link each, the main one first.

    One for each task and setting among its runs; the Lab page shows all schemes of a setting, and before an extension.
    """
    claim, groups = judged.claim, dict[Setting, list[Run]]()
    for run in judged.runs:
        groups.setdefault(run.setting, []).append(run)
    main = Setting(**{n: Setting.parse_field(n, t) for n, t in claim.query.items() if n in SETTING_FIELDS})
    extended = {s.replace(extension="off", times=2, finetune_steps=0) for s in groups if s.extension != "off"}
    out = [(setting_name(main) if groups else "", dict(claim.query))]
    for setting, runs in groups.items():
        schemes = dict.fromkeys(scheme_text(run.spec) for run in runs)
        shown_before = setting in extended and {r.spec for r in runs} <= {
            r.spec for s, more in groups.items() if s.extension != "off" for r in more
        }
        if setting == main or shown_before:
            continue
        seeds = ",".join(map(str, sorted({run.seed for run in runs})))
        out.append((setting_name(setting), {"schemes": ", ".join(schemes), "seeds": seeds} | setting.to_query()))
    return out


SETTING_FIELDS = frozenset(p.name for p in Setting.params())


def setting_name(setting: Setting) -> str:
    """Task, extension and options of a setting in words: text, linear ×4, 50 steps."""
    parts: list[str] = [setting.task]
    if setting.extension != "off":
        parts.append(extension_name(label(NoneSpec(), setting).removeprefix("none, ")))
    plain_setting = setting.replace(extension="off", times=2, finetune_steps=0)
    parts += [f"{n.replace('_', ' ')} {t}" for n, t in plain_setting.to_query().items() if n != "task"]
    return ", ".join(parts)


def extension_name(text: str) -> str:
    """With both names of position interpolation."""
    return text.replace("linear ×", "PI (linear) ×")


def tries(judged: Sequence[Judged], view: ClaimsView) -> list[Try]:
    """The claims that fared worst, unless they are those that are shown."""
    counts = Counter(j.judgement.verdict for j in judged)
    worst: tuple[Verdict, ...] = ("does not hold", "holds with a condition", "holds")
    for verdict in worst:
        if counts[verdict] and verdict != view.verdict:
            query = ClaimsView(verdict=verdict).to_query()
            return [Try(f"only what {verdict}", query, "Each with the numbers that say so.")]
    return []


def how_many(fits: Sequence[Judged], judged: Sequence[Judged]) -> str:
    """How many claims the filters leave."""
    return f"{len(judged)} claims" if len(fits) == len(judged) else f"{len(fits)} of {len(judged)} claims"
