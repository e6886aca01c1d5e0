"""Pictures and sentences of the Choosing page."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from explorer.charts.palette import BLUE
from explorer.facts import short
from explorer.text import Try
from explorer.words import plain
from posenc_core import Spec
from posenc_core.choosing import Choice, Need, Reason
from posenc_core.claims_lab import P_ROPE
from posenc_core.lab import MEASURED, Metric, metric_of, scheme_text

SERIES = (("beside the best", BLUE),)
DOMAIN = (0.0, 165.0)  # percent, with room for words at the end of the longest bar
TICKS = (0.0, 25.0, 50.0, 75.0, 100.0)


def name(choice: Choice) -> str:
    """What a scheme is called."""
    return {"none": "none (NoPE)", P_ROPE: "p-RoPE, half"}.get(choice.scheme, choice.scheme)


def percent(choice: Choice) -> str:
    """The score in words."""
    return "not ranked" if choice.score is None else f"{choice.score:.0%}"


def bars(choices: Sequence[Choice], specs: Sequence[Spec]) -> pd.DataFrame:
    """A bar a scheme, in their order; `specs` are the sidebar's."""
    chosen = set(map(scheme_text, specs))
    rows = []
    for choice in choices:
        notes = [percent(choice)]
        if not choice.fits:
            notes.append("too big")
        if choice.scheme in chosen:
            notes.append("yours")
        rows.append((name(choice), 100 * (choice.score or 0.0), SERIES[0][0], ", ".join(notes)))
    return pd.DataFrame(rows, columns=["name", "value", "series", "text"])


WORDS = {"too big": "over the memory limit", "yours": "the sidebar's scheme"}


def words(bars: pd.DataFrame) -> str:
    """What the words at the ends of the bars mean, of those that are there."""
    found = ", ".join(bars["text"]).split(", ")
    return "; ".join(f"{word}: {meaning}" for word, meaning in WORDS.items() if word in found)


def axis(need: Need) -> str:
    """Title of the axis of scores, short enough for a phone."""
    return f"beside the best at {need.measured}× (%)"


def meaning(need: Need) -> str:
    """What a percentage of the ranking is."""
    tasks = dict.fromkeys([need.task, *(["token_back"] if need.precise_positions else [])])
    by_task = [SCORES[metric_of(task)] for task in tasks]
    also = f", times, for exact positions, {by_task[1]}" if len(by_task) > 1 else ""
    where = "at the training length" if need.measured == 1 else f"at {need.measured} training lengths"
    return f"The percentages: {by_task[0]}, {where}, beside the best scheme's{also}."


SCORES: dict[Metric, str] = {
    "loss": "the probability that a scheme gives to the right byte (geometric mean), which is the exponential of the "
    "difference of their losses in nats a byte",
    "accuracy": "a scheme's share of right answers",
}


def times(count: float) -> str:
    """So many training lengths."""
    return f"{short(count)}×"


def key_numbers(need: Need, choices: Sequence[Choice]) -> list[tuple[str, str, str]]:
    """What is asked for, where it is measured, and how many schemes could be ranked."""
    known = [c for c in choices if c.score is not None]
    return [
        ("needed", times(need.ratio), "training lengths that the target takes, in bytes of this script"),
        ("measured at", times(need.measured), "training lengths, the next that the lab measures: "
         + ", ".join(map(str, MEASURED))),
        ("best there", name(known[0]) if known else "nothing yet", "scheme with the highest score within the limit"),
        ("ranked", f"{len(known)} of {len(choices)}", "schemes that are measured there and defined there"),
        ("a character", f"{need.bytes_per_character:.2f} bytes", "UTF-8 bytes of one in this script, in a sentence"),
    ]  # fmt: skip


def verdict(need: Need, choices: Sequence[Choice]) -> str:
    """The best scheme in a sentence, with what that depends on."""
    known = [c for c in choices if c.score is not None]
    if not known:
        return (
            f"Nothing is ranked yet: the runs of the task {plain(need.task)} were not made on this server. The links "
            "below make them."
        )
    best, others = known[0], known[1:]
    where = "at the training length" if need.measured == 1 else f"at {need.measured} training lengths"
    also = ", and where exact positions matter" if need.precise_positions and need.task != "token_back" else ""
    parts = [f"For the task {plain(need.task)} {where}{also}: **{plain(name(best))}** ({percent(best)})"]
    if after := [c for c in others if c.fits == best.fits][:3]:
        parts[0] += f"; then come {_named(after)}"
    parts[0] += "."
    if not best.fits:
        parts.append("None of the schemes keeps the memory limit.")
    elif better := [c for c in others if not c.fits and (c.score or 0.0) > (best.score or 0.0)]:
        parts.append(f"Better, but over the memory limit: {_named(better)}.")
    if depends := list(dict.fromkeys(r.condition for r in best.reasons if r.condition)):
        parts.append(f"It depends on {'; and on '.join(map(plain, depends))}.")
    return " ".join(parts)


def _named(choices: Sequence[Choice]) -> str:
    *most, last = [f"{plain(name(c))} ({percent(c)})" for c in choices]
    return f"{', '.join(most)} and {last}" if most else last


def title(index: int, choice: Choice) -> str:
    """The headline of a scheme's reasons."""
    over = "" if choice.fits else ", over the memory limit"
    return f"**{index}. {plain(name(choice))}**: {percent(choice)}{over}"


def told(reason: Reason) -> str:
    """A reason with what it depends on, in Markdown."""
    condition = f"  \n:material/alt_route: It depends on {plain(reason.condition)}." if reason.condition else ""
    return plain(reason.text) + condition


def tries(need: Need) -> list[Try]:
    """Links that change what is asked."""
    made = []
    if need.task != "recall":
        made.append(_try("content at any distance", need, "Ranked by what is found by content.", task="recall"))
    if not need.precise_positions and need.task != "token_back":
        made.append(
            _try(
                "exact positions matter too",
                need,
                "A second measurement counts: the letter so many positions back.",
                precise_positions=True,
            )
        )
    if need.measured > 1:
        made.append(
            _try(
                "no further than trained",
                need,
                "Every scheme is defined there.",
                target_length=need.trained_length,
                languages="latin",
            )
        )
    return made[:2]


def _try(label: str, need: Need, then: str, **changes: object) -> Try:
    return Try(label, need.replace(**changes).to_query(), then)
