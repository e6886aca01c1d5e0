"""The Choosing page: the core's own ranking, links that open, the extremes of its controls, missing results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from explorer import state
from explorer.compute import claims as compute
from explorer.compute import lab as lab_compute
from explorer.pictures import choosing as pictures
from explorer.views import VIEWS, ChoosingView
from posenc_core import parse_spec
from posenc_core.choosing import Choice, Need, Reason, needed, rank
from posenc_core.claims import Evidence
from posenc_core.claims_table import CLAIMS
from posenc_core.lab import BINS, TIMES, Result, Run
from posenc_core.lab_store import Store

MACHINE = {
    "cpu": "Test CPU", "cores": 2, "load": 0.5, "torch_threads": 1, "torch": "2.0", "gpu": None, "python": "3.11",
    "system": "Linux", "date": "2026-01-02T03:04:05+00:00",
}  # fmt: skip
TASKS = ChoosingView.param("task").choices
EXTREMES: list[dict[str, str]] = [
    {},
    {"trained_length": "2", "target_length": "16777216", "languages": "mixed", "memory": "1"},
    {"trained_length": "16777216", "target_length": "2", "memory": "1048576"},
    {"task": "recall", "precise_positions": "true", "languages": "devanagari"},
    {"task": "token_back", "precise_positions": "true", "trained_length": "100", "target_length": "400"},
    *({"task": task} for task in TASKS[1:]),
]


def made(run: Run) -> Result:
    """A result in which the longer name is the better, and everything falls off past the training length."""
    good = 0.01 * len(run.label)
    loss: list[float | None] = [round(3 - good + 0.01 * run.seed + 0.02 * i / BINS, 6) for i in range(TIMES * BINS)]
    accuracy: list[float | None] = [round(0.5 + good - 0.003 * i, 6) for i in range(TIMES * BINS)]
    if "learned" in run.label:
        loss[BINS:] = accuracy[BINS:] = [None] * (len(loss) - BINS)
    return Result(run.key, run.sized, run.setting, run.seed, ((10, 2.0),), tuple(loss), tuple(accuracy), (), 1.0,
                  MACHINE)  # fmt: skip


class Weightless:
    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return {run.key: made(run) for run in needed()}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, results: dict[str, Result]) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    for result in results.values():
        Store(folder, None).put(result, Weightless())  # type: ignore[arg-type]
    return folder


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, full: Path) -> None:
    """A store with a result for every run that a ranking reads."""
    monkeypatch.setenv(lab_compute.FOLDER, str(full))
    monkeypatch.setattr(lab_compute, "SHIPPED", full / "nothing")


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A store with nothing in it."""
    monkeypatch.setenv(lab_compute.FOLDER, str(tmp_path))
    monkeypatch.setattr(lab_compute, "SHIPPED", tmp_path / "nothing")


def plain(texts: list[str]) -> str:
    """Markdown without its escapes."""
    return re.sub(r"\\(.)", r"\1", "\n".join(texts)).replace("\u2060", "")


def said(at: Any) -> str:
    return plain([m.value for m in at.main.markdown])


def titles(at: Any) -> list[str]:
    return [plain([e.label]) for e in at.main.expander if re.match(r"\*\*\d+\. ", e.label)]


def need_of(query: dict[str, str]) -> Need:
    return Need(**{name: Need.parse_field(name, text) for name, text in query.items()})


def assert_shows(at: Any, choices: list[Choice], need: Need) -> None:
    assert not at.exception
    assert not at.warning
    assert titles(at) == [plain([pictures.title(i, c)]) for i, c in enumerate(choices, 1)]
    text = said(at)
    for choice in choices:
        for reason in choice.reasons:
            assert reason.text in text
            assert reason.condition in text
    links = [link.proto for link in at.main.get("page_link") if link.proto.label.startswith("See it")]
    assert [link.page for link in links] == [r.page for c in choices for r in c.reasons if r.page]
    facts = {m.label: m.value for m in at.metric}
    assert len(facts) == 5
    known = [c for c in choices if c.score is not None]
    assert facts["ranked"] == f"{len(known)} of {len(choices)}"
    assert facts["measured at"] == f"{need.measured}×"


@pytest.mark.parametrize("query", EXTREMES, ids=str)
def test_the_page_shows_the_ranking_of_the_core(
    measured: None, open_app: Any, results: dict[str, Result], query: dict[str, str]
) -> None:
    need = need_of(query)
    expected = rank(need, Evidence(results))
    at = open_app("choosing", query)
    assert_shows(at, expected, need)
    known = [c for c in expected if c.score is not None]
    assert known
    assert f"**{pictures.name(known[0])}**" in said(at)
    for condition in {r.condition for r in known[0].reasons} - {""}:
        assert said(at).count(condition) >= 2  # in the sentence and beside its reason
    assert any("Test CPU" in c.value and "Not made" not in c.value for c in at.main.caption)


@pytest.mark.parametrize("query", EXTREMES, ids=str)
def test_without_results_nothing_is_ranked_and_the_links_measure_it(
    empty: None, open_app: Any, query: dict[str, str]
) -> None:
    need = need_of(query)
    expected = rank(need, Evidence({}))
    assert all(c.score is None for c in expected)
    at = open_app("choosing", query)
    assert_shows(at, expected, need)
    assert "Nothing is ranked yet" in said(at)
    assert {m.label: m.value for m in at.metric}["best there"] == "nothing yet"
    assert at.get("vega_lite_chart")
    for choice in expected:
        assert choice.reasons[0].page == "lab"


def reasons(found: Evidence) -> list[Reason]:
    needs = [need_of(q) for q in EXTREMES] + [
        Need(task=task, trained_length=64, target_length=64 * times, precise_positions=precise)
        for task in TASKS for times in (1, 2, 4, 8, 16) for precise in (False, True)
    ]  # fmt: skip
    return [r for need in needs for c in rank(need, found) for r in c.reasons]


@pytest.mark.parametrize("with_results", [True, False])
def test_every_reason_leads_to_a_page_that_reads_all_of_its_link(
    results: dict[str, Result], with_results: bool
) -> None:
    found = reasons(Evidence(results if with_results else {}))
    numbers = {claim.number for claim in CLAIMS}
    assert found
    for reason in found:
        assert reason.page in VIEWS
        assert reason.claim is None or reason.claim in numbers
        values, rejected = state.read_link(reason.page, {name: [text] for name, text in reason.query.items()})
        assert rejected == (), reason
        assert values.keys() >= reason.query.keys()


def test_the_links_on_the_page_carry_the_reasons_and_their_claims(measured: None, open_app: Any) -> None:
    at = open_app("choosing", {"scheme": "none", "task": "recall"})
    choices = compute.ranked(ChoosingView(task="recall")).choices
    links = [link.proto for link in at.main.get("page_link")]
    seen = [dict(parse_qsl(link.query_string)) for link in links if link.label.startswith("See it")]
    for query, reason in zip(seen, [r for c in choices for r in c.reasons if r.page], strict=True):
        assert query.pop(state.GO) == "1"
        assert query == ({} if "scheme" in reason.query else {"scheme": "none"}) | dict(reason.query)
    claims = [dict(parse_qsl(link.query_string))["claim"] for link in links if link.page == "claims"]
    assert claims == [str(r.claim) for c in choices for r in c.reasons if r.claim is not None]
    for link in links:
        if link.page == "claims":
            number = int(dict(parse_qsl(link.query_string))["claim"])
            assert link.label == f"Claim {number}: {compute.BY_NUMBER[number].name}"


def test_one_link_of_each_page_opens_what_it_names(measured: None, open_app: Any, results: dict[str, Result]) -> None:
    opened = set[str]()
    for reason in reasons(Evidence(results)):
        if reason.page and reason.page not in opened:
            opened.add(reason.page)
            at = open_app(reason.page, dict(reason.query))
            assert not at.exception
            assert not [w for w in at.warning if "link" in w.value]
    assert opened == {"lab"}


def test_what_a_percentage_is_stands_below_the_picture(measured: None, open_app: Any) -> None:
    at = open_app("choosing", {"task": "text", "precise_positions": "true"})
    [told] = [c.value for c in at.main.caption if "The percentages" in c.value]
    assert "exponential" in told
    assert "nats a byte" in told
    assert told.index("right byte") < told.index("share of right answers")
    assert "exponential" not in pictures.meaning(Need(task="recall"))
    assert len(pictures.axis(Need())) <= 35  # a phone's width


def test_controls_stand_in_the_order_of_the_fields(open_app: Any) -> None:
    at = open_app("choosing")
    names = [p.name for p in ChoosingView.params()]
    keys = [w.key for w in at.main if getattr(w, "key", None) in names]
    assert keys == names


def test_tries_change_one_thing_each() -> None:
    need = ChoosingView(languages="cjk")
    for one in pictures.tries(need):
        assert dict(one.changes).pop("languages") == "cjk"
        values, rejected = state.read_link("choosing", {n: [t] for n, t in one.changes.items()})
        assert rejected == ()
        assert len({n for n, t in one.changes.items() if need.to_query().get(n) != t}) == 1
        assert values
    everything = ChoosingView(task="recall", precise_positions=True)
    assert [t.changes for t in pictures.tries(everything)] == [
        everything.replace(target_length=everything.trained_length).to_query()
    ]


CHOICES = [
    Choice("alibi", 1.0, True, (Reason("a.", "lab", {}, None, "the seed"),)),
    Choice("rope(rotary_fraction=0.5, scaling=proportional)", 0.5, True, ()),
    Choice("rope", 0.25, False, ()),
    Choice("learned", None, True, ()),
]


def test_bars_are_the_scores_in_order_with_what_has_to_be_said() -> None:
    rope = parse_spec({"scheme": "rope"})
    frame = pictures.bars(CHOICES, [rope])
    assert frame["name"].tolist() == ["alibi", "p-RoPE, half", "rope", "learned"]
    assert frame["value"].tolist() == [100.0, 50.0, 25.0, 0.0]
    assert frame["text"].tolist() == ["100%", "50%", "25%, too big, yours", "not ranked"]
    assert pictures.words(frame) == "too big: over the memory limit; yours: the sidebar's scheme"
    assert pictures.words(frame[:2]) == ""
    other = parse_spec({"scheme": "rope", "base": 500_000.0})
    assert not any("yours" in t for t in pictures.bars(CHOICES, [other])["text"])


def test_the_sentence_names_the_best_what_follows_and_what_it_depends_on() -> None:
    need = Need(trained_length=64, target_length=256)
    assert plain([pictures.verdict(need, CHOICES)]) == (
        "For the task text at 4 training lengths: **alibi** (100%); then come p-RoPE, half (50%). "
        "It depends on the seed."
    )
    over = [Choice("alibi", 0.5, True, ()), Choice("rope", 1.0, False, ())]
    assert "Better, but over the memory limit: rope (100%)." in pictures.verdict(need, over)
    assert "None of the schemes keeps the memory limit." in pictures.verdict(need, [Choice("rope", 1.0, False, ())])
    assert pictures.verdict(need, CHOICES[3:]).startswith("Nothing is ranked yet")
