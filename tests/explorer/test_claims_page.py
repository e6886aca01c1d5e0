"""The Claims page: every claim with the core's own verdict and numbers, links that open, filters, results that come."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qsl

import numpy as np
import pytest

from explorer import state
from explorer.charts.palette import SCHEME_COLOURS, contrast
from explorer.compute import claims as compute
from explorer.compute import lab as lab_compute
from explorer.compute.claims import Judged
from explorer.pictures import claims as pictures
from explorer.views import VIEWS, ClaimsView, LabView
from posenc_core import claims_table
from posenc_core.claims import Claim, Evidence, Judgement, Number, Source, Verdict
from posenc_core.claims_table import CLAIMS
from posenc_core.lab import BINS, MEASURED, TIMES, Result, Run, Setting, parse_schemes, runs
from posenc_core.lab_store import Store

MACHINE = {
    "cpu": "Test CPU", "cores": 2, "load": 0.5, "torch_threads": 1, "torch": "2.0", "gpu": None, "python": "3.11",
    "system": "Linux", "date": "2026-01-02T03:04:05+00:00",
}  # fmt: skip
NUMBERS = [claim.number for claim in CLAIMS]
TRAINED = [claim for claim in CLAIMS if claim.runs()]
DIRECT = [claim for claim in CLAIMS if not claim.runs()]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A store with nothing in it."""
    monkeypatch.setenv(lab_compute.FOLDER, str(tmp_path))
    monkeypatch.setattr(lab_compute, "SHIPPED", tmp_path / "nothing")
    compute._judge.clear()  # by the runs' keys, which stand for one result each in an app
    return tmp_path


def made(run: Run, level: float = 2.0, rise: float = 0.1) -> Result:
    """A result that rises by `rise` a training length."""
    loss = tuple(round(level + rise * i / BINS + 0.01 * run.seed, 6) for i in range(TIMES * BINS))
    accuracy = tuple(max(0.0, 1 - 0.001 * i) for i in range(TIMES * BINS))
    return Result(run.key, run.sized, run.setting, run.seed, ((10, level),), loss, accuracy, (), 1.0, MACHINE)


def keep(folder: Path, result: Result) -> None:
    class Model:
        def state_dict(self) -> dict[str, Any]:
            return {}

    Store(folder, None).put(result, Model())  # type: ignore[arg-type]


def text_of(at: Any) -> str:
    """All Markdown of the main part, without escapes and the addresses of links."""
    whole = "\n".join(m.value for m in [*at.main.markdown, *at.main.caption])
    whole = re.sub(r"\[(arXiv:[^\]]*)\]\(https://arxiv\.org/abs/[^)]*\)", r"\1", whole)
    return re.sub(r"\\(.)", r"\1", whole).replace("\u2060", "")


def shown(at: Any) -> list[int]:
    """Numbers of the claims that have a row."""
    found = [re.match(r"\*\*(\d+)\. ", m.value) for m in at.main.markdown]
    return [int(m[1]) for m in found if m]


def links(at: Any, label: str) -> list[Any]:
    return [link.proto for link in at.main.get("page_link") if link.proto.label.startswith(label)]


def timings() -> Mapping[str, Any]:
    """The recorded timings that the claims are judged by."""
    return claims_table.timings([run.content for run in compute.recorded_runs(compute.BENCHMARKS)])


def assert_same(found: Judgement, expected: Judgement) -> None:
    """Equal but for rounding, which hangs on the number of threads."""
    assert (found.verdict, found.condition) == (expected.verdict, expected.condition)
    assert [dataclasses.replace(n, value=0.0) for n in found.numbers] == [
        dataclasses.replace(n, value=0.0) for n in expected.numbers
    ]
    np.testing.assert_allclose([n.value for n in found.numbers], [n.value for n in expected.numbers], 1e-6, 1e-9)


# ---------------------------------------------------------------- what is shown is what the core says


def test_every_claim_has_a_row_with_its_sentence_source_experiment_and_a_link(opened: Any) -> None:
    at = opened("claims")
    assert not at.exception
    assert shown(at) == NUMBERS
    text = text_of(at)
    for claim in CLAIMS:
        for words in (claim.sentence, claim.source, claim.reference, claim.experiment):
            assert words in text, (claim.number, words)
    assert len(links(at, "Open the experiment")) == len(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.name)
def test_verdict_and_numbers_are_those_of_the_core(opened: Any, claim: Claim) -> None:
    found = {run.key: r for run in claim.runs() if (r := lab_compute.result(run.key)) is not None}
    expected = claim.judge(Evidence(found, timings()))
    at = opened("claims", f"claim={claim.number}")
    assert not at.exception
    text = text_of(at)
    [row] = [part for part in text.split("\n**") if part.startswith(f"{claim.number}. ")]
    block = text.split("### ", 2)[1].split("Claims measured")[0]
    judged = compute.judgement_of(claim.number)
    for part, numbers in ((block, judged.judgement.numbers), (row, pictures.first_numbers(judged))):
        assert f":material/{pictures.SIGNS[expected.verdict].icon}: {expected.verdict}]" in part
        assert expected.condition in part
        for number in numbers:
            assert f"{number.name}: **{pictures.amount(number.value, number.unit)}**" in part
            assert number.claimed in part
    assert len(pictures.first_numbers(judged)) == min(2, len(expected.numbers))
    assert claim.sentence in row
    assert pictures.rule_of(claim)
    assert " ".join(pictures.rule_of(claim).split()) in " ".join(block.split())
    assert_same(judged.judgement, expected)


def test_the_counts_are_those_of_the_verdicts(opened: Any) -> None:
    at = opened("claims")
    counts = Counter(j.judgement.verdict for j in compute.judged())
    assert {m.label: m.value for m in at.metric} == {v: f"{counts[v]} of {len(CLAIMS)}" for v in get_args(Verdict)}


def test_the_cells_have_every_claim_once_with_sign_and_colour() -> None:
    judged = compute.judged()
    frame, rows = pictures.cells(judged, judged[:3], NUMBERS[1])
    assert frame["number"].tolist() == NUMBERS
    assert len(set(zip(frame["column"], frame["row"], strict=True))) == len(CLAIMS)
    assert frame["row"].max() == rows - 1
    assert frame["fits"].sum() == 3
    assert frame.loc[frame["chosen"], "number"].tolist() == [NUMBERS[1]]
    for j, sign, series in zip(judged, frame["sign"], frame["series"], strict=True):
        assert series == f"{sign} {j.judgement.verdict}"
        assert series in dict(pictures.SERIES)
    for series, ink in zip(frame["series"], frame["ink"], strict=True):
        assert contrast(dict(pictures.SERIES)[series], ink) >= 4.5
    assert all(contrast(s.fill, pictures.ink(s.fill)) >= 4.5 for s in pictures.SIGNS.values())
    assert len({s.sign for s in pictures.SIGNS.values()}) == len({s.fill for s in pictures.SIGNS.values()}) == 4


def test_the_table_holds_the_same(opened: Any) -> None:
    judged = compute.judged()
    rows = list(csv.DictReader(io.StringIO(pictures.table(judged).to_csv(index=False))))
    assert [int(r["claim"]) for r in rows] == NUMBERS
    for row, j in zip(rows, judged, strict=True):
        assert (row["verdict"], row["sentence"]) == (j.judgement.verdict, j.claim.sentence)
        for number in j.judgement.numbers:
            assert f"{number.name}: {pictures.amount(number.value, number.unit)}" in row["measured"]


# ---------------------------------------------------------------- links


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.name)
def test_the_link_of_a_claim_opens_a_page_that_reads_all_of_it(open_app: Any, claim: Claim) -> None:
    assert claim.page in VIEWS
    values, rejected = state.read_link(claim.page, {name: [text] for name, text in claim.query.items()})
    assert rejected == ()
    assert values.keys() >= claim.query.keys()
    at = open_app(claim.page, claim.query)
    assert not at.exception
    assert not [w.value for w in at.warning if "link" in w.value]


def test_the_links_on_the_page_are_those_of_the_claims(open_app: Any) -> None:
    at = open_app("claims", "scheme=alibi&n_heads=12&b_scheme=none")
    for claim, link in zip(CLAIMS, links(at, "Open the experiment"), strict=True):
        query = dict(parse_qsl(link.query_string))
        assert query.pop(state.GO) == "1"
        kept = {} if "scheme" in claim.query else {"scheme": "alibi", "n_heads": "12", "b_scheme": "none"}
        assert (link.page, query) == (claim.page, kept | dict(claim.query))


@pytest.mark.parametrize("claim", TRAINED, ids=lambda c: c.name)
def test_the_links_of_a_claim_open_all_of_its_runs(claim: Claim) -> None:
    shown, names = set[str](), list[str]()
    for name, query in pictures.experiments(compute.judgement_of(claim.number)):
        values, rejected = state.read_link("lab", {n: [t] for n, t in query.items()})
        assert rejected == ()
        view = LabView(**{n: LabView.parse_field(n, t) for n, t in query.items()})
        assert values["task"] == view.task
        schemes = parse_schemes(view.schemes)
        made_here, problems = runs(
            schemes, lab_compute.setting_of({p.name: getattr(view, p.name) for p in LabView.params()}), view.seeds
        )
        assert not problems
        shown |= {run.key for run in made_here}
        names.append(name)
        assert name.startswith(view.task)
    assert {run.key for run in claim.runs()} <= shown
    assert len(set(names)) == len(names)
    assert pictures.experiments(compute.judgement_of(claim.number))[0][1] == dict(claim.query)


def test_an_open_claim_links_to_each_of_its_settings(opened: Any) -> None:
    at = opened("claims", "claim=13")
    found = [link.proto for link in at.main.get("page_link") if link.proto.label.startswith("text, ")]
    expected = pictures.experiments(compute.judgement_of(13))[1:]
    assert [dict(parse_qsl(link.query_string)) for link in found] == [
        {"go": "1", "scheme": "rope"} | query for _, query in expected
    ]
    assert {name for name, _ in expected} >= {"text, PI (linear) ×4", "text, unscaled ×4, 50 steps"}
    assert pictures.experiments(compute.judgement_of(1)) == [("", dict(compute.BY_NUMBER[1].query))]


@pytest.mark.parametrize("page", [page for page in VIEWS if page != "lab"])
def test_a_page_links_back_to_the_claims_about_it(opened: Any, page: str) -> None:
    at = opened(page, "scheme=alibi&n_heads=12")
    here = [claim for claim in CLAIMS if claim.page == page]
    found = [x.proto for x in at.main.get("page_link") if re.match(r"\d+ · ", x.proto.label)]
    assert [dict(parse_qsl(link.query_string)) for link in found] == [
        {"go": "1", "scheme": "alibi", "n_heads": "12", "claim": str(claim.number)} for claim in here
    ]
    assert any("Claims about what is shown here" in m.value for m in at.main.markdown) == bool(here)


def test_a_kind_of_source_is_said_once() -> None:
    assert pictures.said_by(compute.BY_NUMBER[4]) == "articles"
    assert pictures.said_by(compute.BY_NUMBER[26]) == "a slip in articles"
    assert pictures.said_by(compute.BY_NUMBER[2]).startswith("paper: Vaswani")


def test_a_claim_opens_large_keeps_the_filters_and_leads_to_its_neighbours(open_app: Any, address: Any) -> None:
    first, second, third = NUMBERS[:3]
    at = open_app("claims", f"claim={second}&about=all&source_kind=any&words=e")
    assert address(at) == {"scheme": "rope", "claim": str(second), "words": "e"}
    [before], [after], [close] = (links(at, label) for label in ("Claim before", "Next claim", "Close"))
    for link, expected in ((before, {"claim": str(first)}), (after, {"claim": str(third)}), (close, {})):
        query = dict(parse_qsl(link.query_string))
        assert query == {state.GO: "1", "scheme": "rope", "words": "e"} | expected
    opens = [dict(parse_qsl(link.query_string))["claim"] for link in links(at, "All of it")]
    assert opens == [str(n) for n in shown(at)]


@pytest.mark.parametrize("asked", [*[n for n in range(1, 100) if n not in NUMBERS][:2], 99])
def test_a_claim_that_is_not_there_is_told(open_app: Any, asked: int) -> None:
    at = open_app("claims", f"claim={asked}")
    assert not at.exception
    [notice] = [w.value.replace("\\", "") for w in at.warning]
    assert f"claim = {asked} is not legal (there is none)" in notice
    assert shown(at) == NUMBERS


# ---------------------------------------------------------------- filters


def test_the_choices_are_those_of_the_core() -> None:
    assert ClaimsView.param("verdict").choices == ("any", *get_args(Verdict))
    assert ClaimsView.param("source_kind").choices == ("any", *get_args(Source))
    assert max(NUMBERS) <= (ClaimsView.param("claim").maximum or 0)


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_a_verdict_leaves_its_claims(open_app: Any, verdict: str) -> None:
    at = open_app("claims", {"verdict": verdict})
    assert shown(at) == [j.claim.number for j in compute.judged() if j.judgement.verdict == verdict]
    assert len(at.metric) == 4


@pytest.mark.parametrize("kind", get_args(Source))
def test_a_kind_of_source_leaves_its_claims(open_app: Any, kind: str) -> None:
    at = open_app("claims", {"source_kind": kind})
    expected = [c.number for c in CLAIMS if c.source == kind]
    assert shown(at) == expected
    assert bool(expected) != any("No claim fits" in m.value for m in at.main.markdown)


def test_words_are_all_looked_for_and_nothing_is_said_when_nothing_fits(open_app: Any) -> None:
    at = open_app("claims", {"words": "ALiBi SLOPES"})
    assert shown(at)
    assert shown(at) == [
        j.claim.number
        for j in compute.judged()
        if all(
            w in " ".join(
                [str(j.claim.number), j.claim.name, j.claim.sentence, j.claim.reference, j.claim.experiment,
                 j.judgement.condition]
            ).lower()
            for w in ("alibi", "slopes")
        )
    ]  # fmt: skip
    at = open_app("claims", {"words": "zzzz"})
    assert shown(at) == []
    assert any("No claim fits" in m.value for m in at.main.markdown)
    assert not at.exception
    at.button(key="_all_below").click().run()
    assert not at.exception
    assert shown(at) == NUMBERS
    assert not [b for b in at.main.button if b.label == "All claims"]


@pytest.mark.parametrize("scheme", ["alibi", "learned"])
def test_only_claims_about_the_sidebars_scheme(open_app: Any, scheme: str) -> None:
    at = open_app("claims", {"scheme": scheme, "about": "chosen"})
    assert shown(at)
    for number in shown(at):
        claim = compute.BY_NUMBER[number]
        specs = {layer.scheme for run in claim.runs() for layer in run.layer_specs}
        assert scheme in {*specs, claim.query.get("scheme"), claim.query.get("b_scheme")}
    assert len(shown(at)) < len(CLAIMS)


# ---------------------------------------------------------------- results that are missing, and that come


@pytest.mark.parametrize("claim", TRAINED, ids=lambda c: c.name)
def test_a_claim_without_its_runs_is_not_measured_and_says_so(folder: Path, open_app: Any, claim: Claim) -> None:
    at = open_app("claims", f"claim={claim.number}")
    assert not at.exception
    count = len(claim.runs())
    assert f"Not made yet: {count} of {count} runs." in text_of(at)
    assert compute.judgement_of(claim.number).judgement == claim.judge(Evidence({}, timings()))
    assert links(at, "Open the experiment")


def test_what_this_server_makes_changes_the_verdict_at_once(folder: Path, open_app: Any) -> None:
    claim = min(TRAINED, key=lambda c: len(c.runs()))
    at = open_app("claims", f"claim={claim.number}")
    before = compute.judgement_of(claim.number)
    assert before.results == ()
    results = [made(run) for run in claim.runs()]
    for result in results:
        keep(folder, result)
    at.run()
    assert not at.exception
    after = compute.judgement_of(claim.number)
    assert {r.key for r in after.results} == {r.key for r in results}
    assert after.judgement == claim.judge(Evidence({r.key: r for r in results}, timings()))
    text = text_of(at)
    assert f"Made on this server: {len(results)} runs of {len({r.seed for r in results})} seeds, Test CPU" in text
    assert "2026-01-02" in text
    assert "Not made yet" not in text.split("\n**")[0]
    assert at.get("vega_lite_chart")[0].proto.alt.endswith(f"task {results[0].setting.task}")


@pytest.mark.parametrize("claim", DIRECT, ids=lambda c: c.name)
def test_a_claim_without_runs_says_where_its_numbers_come_from(claim: Claim) -> None:
    judged = compute.judgement_of(claim.number)
    said = pictures.origin(judged)
    if judged.timed is None:
        assert said == pictures.COMPUTED
    else:
        assert str(judged.timed["cpu"]) in said
        assert str(judged.timed["date"]) in said


def test_what_came_with_the_app_is_told_apart_from_what_was_made_here() -> None:
    asked = tuple(Run(spec, seed=seed) for spec in parse_schemes("rope, alibi") for seed in (0, 1))
    results = tuple(map(made, asked))
    said = pictures.origin(judged_of(results[:3], asked, frozenset({results[0].key})))
    machine = "Test CPU, 2 cores, torch threads: 1, torch 2.0, Python 3.11, Linux, 2026-01-02"
    assert said == (
        f"Recorded: 2 runs of 2 seeds, {machine}. Made on this server: 1 run of 1 seed, {machine}. "
        "Not made yet: 1 of 4 runs."
    )


# ---------------------------------------------------------------- the pieces


def judged_of(results: tuple[Result, ...], runs: tuple[Run, ...] = (), here: frozenset[str] = frozenset()) -> Judged:
    return Judged(CLAIMS[0], Judgement("holds", ()), results, runs, here, None)


def test_lines_are_means_and_bands_over_seeds_with_a_panel_a_task() -> None:
    rope, alibi = parse_schemes("rope, alibi")
    asked = [Run(s, Setting(task=t), seed) for t in ("text", "copy") for s in (rope, alibi) for seed in (0, 1, 2)]
    results = tuple(made(run, 2.0 if run.spec == rope else 3.0) for run in asked)
    text, copy = pictures.panels(judged_of(results))
    assert (text.task, copy.task) == ("text", "copy")
    assert [name for name, _ in text.lines.series] == ["rope", "alibi"]
    assert len({colour for _, colour in text.lines.series}) == 2
    for panel, metric in ((text, "loss"), (copy, "accuracy")):
        data = panel.lines.data
        for name in ("rope", "alibi"):
            mine = [r for r in results if r.setting.task == panel.task and r.label == name]
            values = np.array([[r.at(t, metric) for t in MEASURED] for r in mine])
            line = data[(data["part"] == "line") & (data["series"] == name)]
            band = data[(data["part"] == "band") & (data["series"] == name)]
            assert line["x"].tolist() == list(MEASURED)
            np.testing.assert_allclose(line["y"], values.mean(0))
            np.testing.assert_allclose(band["low"], values.min(0))
            np.testing.assert_allclose(band["high"], values.max(0))
    assert "accuracy" in copy.lines.y_title
    assert "nats" in text.lines.y_title


def test_lines_are_told_apart_by_what_differs() -> None:
    rope = parse_schemes("rope")[0]
    settings = (Setting(), Setting(curriculum="progressive"), Setting(extension="yarn", times=4), Setting(steps=50))
    results = [made(Run(rope, s)) for s in settings]
    found = pictures.names(results)
    assert len(set(found)) == len(found)
    assert found[1] == "curriculum progressive, steps 600"
    assert found[2].startswith("yarn ×4")  # of the only scheme
    assert pictures.names([made(Run(s)) for s in parse_schemes("rope, alibi")]) == ["rope", "alibi"]
    assert pictures.names(results[:1]) == ["rope"]


def test_schemes_have_their_colours_and_what_is_made_of_them_is_dashed() -> None:
    rope, alibi, half = parse_schemes("rope, alibi, rope(rotary_fraction=0.5)")
    other = Setting(curriculum="progressive")
    several = [Setting(extension="linear", times=n, finetune_steps=s) for n in (2, 4) for s in (0, 50)]
    first = {"r+": made(Run(rope, other)), "half": made(Run(half)), "a+": made(Run(alibi, other)),
             "a": made(Run(alibi)), "r": made(Run(rope))}  # fmt: skip
    found = pictures.styles(first)
    assert (found["r"], found["r+"]) == ((SCHEME_COLOURS["rope"], False), (SCHEME_COLOURS["rope"], True))
    assert (found["a"], found["a+"]) == ((SCHEME_COLOURS["alibi"], False), (SCHEME_COLOURS["alibi"], True))
    assert found["half"][0] not in {SCHEME_COLOURS["rope"], SCHEME_COLOURS["alibi"]}
    assert not found["half"][1]
    found = pictures.styles({str(i): made(Run(rope, s)) for i, s in enumerate([Setting(), *several])})
    assert found["0"] == (SCHEME_COLOURS["rope"], False)
    assert all(dashed for name, (_, dashed) in found.items() if name != "0")
    assert len({colour for colour, _ in found.values()}) == 5


def test_the_caption_tells_the_points_that_decide() -> None:
    [panel] = pictures.panels(compute.judgement_of(13))
    told = pictures.seen_panel(panel).replace("\\", "").replace("\u2060", "")
    at_2, at_4 = told.split(" At 2 times: ")[1].split(" At 4 times: ")
    for part, n, m in ((at_2, 2, 4), (at_4, 4, 2)):
        assert f"linear ×{n} **" in part
        assert f"unscaled ×{n}, 50 **" in part
        assert f"×{m}" not in part
        values = {x.name: x.value for x in compute.judgement_of(13).judgement.numbers}
        assert f"linear ×{n}, 50 **{values[f'PI (linear) ×{n}, 50 steps']:.2f}**" in part
    assert "linear is position interpolation (PI); after the comma stand steps of fine-tuning" in told
    [short] = pictures.panels(compute.judgement_of(22))
    assert " At the training length: " in pictures.seen_panel(short)


def test_more_lines_than_colours_are_dashed() -> None:
    specs = parse_schemes(", ".join(f"rope(base={10**i})" for i in range(2, 12)))
    [panel] = pictures.panels(judged_of(tuple(made(Run(s)) for s in specs)))
    looks = {(c, n in panel.dashed) for n, c in panel.lines.series}
    assert len(looks) == len(specs)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1.90249, "nats", "1.902 nats"), (7.0, "%", "7%"), (62_831.85, "", "62,832"), (3.1e-7, "", "3.1e-07"),
        (0.0, "", "0"), (2048, "positions", "2,048 positions"), (float("nan"), "nats", "not a number nats"),
        (float("inf"), "", "infinite"), (-0.25, "×", "-0.25×"), (1e300, "", "1e+300"), (1_048_576, "", "1,048,576"),
        (1.0, "of the answers", "100% of the answers"), (7, "of 9", "7 of 9"), (0.5, "of base·2π", "50% of base·2π"),
        (7.2e-16, "of the output", "none (below 1e-15)"), (0.4, "of 0.71, squared", "0.4 of 0.71, squared"),
    ],
)  # fmt: skip
def test_numbers_are_written_short(value: float, unit: str, expected: str) -> None:
    assert pictures.amount(value, unit) == expected
    assert pictures.said(Number("a*b", value, unit)).startswith(r"a\*b: **")


LEVEL, OTHER = 0.25, ("no", "number")


def some_rule(evidence: Evidence) -> Judgement:
    """It holds below LEVEL of ALL, whatever OTHER says."""
    return Judgement("holds", ())


def test_a_rule_is_told_with_the_values_of_its_thresholds() -> None:
    claim = dataclasses.replace(CLAIMS[0], judge=some_rule)
    assert pictures.rule_of(claim) == "It holds below 0.25 of ALL, whatever OTHER says."


def test_numbers_stand_beside_those_of_the_claim_and_the_spread_of_the_seeds() -> None:
    numbers = (Number("a", 1.0), Number("b", 2.0), Number("rise", 0.04, "nats", 0.02, "within 0.1"))
    judged = dataclasses.replace(judged_of(()), judgement=Judgement("holds", numbers))
    assert [n.name for n in pictures.first_numbers(judged)] == ["rise", "a"]
    assert pictures.numbers_text(judged) == "a: 1; b: 2; rise: 0.04 nats (claimed: within 0.1; seeds differ by 0.02)"
    assert pictures.beside(Number("c", 1.0, "of the answers", 0.0441)) == " (seeds differ by 4.4%)"
    assert pictures.findings(judged).endswith("a: **1** · and 1 more]")


@pytest.fixture(scope="module", autouse=True)
def _no_judgement_is_left_behind() -> Iterator[None]:
    yield
    compute._judge.clear()


def test_an_experiment_without_a_scheme_keeps_the_sidebars() -> None:
    here: Mapping[str, str] = {"go": "1", "scheme": "alibi", "seq_len": "64"}
    assert pictures.experiment({"task": "text"}, here) == {**here, "task": "text"}
    assert pictures.experiment({"scheme": "rope"}, here) == {"go": "1", "scheme": "rope"}
