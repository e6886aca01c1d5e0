"""What the Extrapolation lab page says of its options, of the runs still to make, of the job, and of what to try."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from explorer.charts import curves
from explorer.charts.palette import BLACK, CATEGORICAL, SCHEME_COLOURS, VERMILLION
from explorer.compute.lab import Asked, Left, Live, Work
from explorer.pictures.common import Lines, count
from explorer.text import Try
from explorer.views import LabView
from posenc_core import Spec, lab
from posenc_core.lab import Run, Setting
from posenc_core.tasks import TEXTS
from posenc_core.train import slope_factor

OWN_NAMES = {"train_length": "lengths"}  # of the command line
KNOWN_PACE = 0.03  # share of a job after which its own pace tells the time left better than the estimate
KNOWN_AFTER = 5.0  # seconds after which it does so too
MOST_TEXT = LabView.param("schemes").max_length or 0
TASKS = {  # in the list of tasks
    "text": "text: the next byte",
    "short_texts": "short_texts: unrelated sentences",
    "copy": "copy: a repeating string",
    "token_back": "token_back: so many letters back",
    "brackets": "brackets: which one is closed",
    "recall": "recall: a key's value, at any distance",
}
OPTIONS = {
    "curriculum": "Progressive length: training starts at an eighth of the length and doubles it three times, with "
    "as many tokens a step and a new warm-up at each; articles promise better extrapolation.",
    "slope_training": "ALiBi's slopes in training: fixed as in the paper, multiplied by 1 + α·log(t/T) at step t of T, "
    "or learned.",
    "alpha": "The α of dynamic slopes. The factor is negative at first, so early on distance is rewarded: see below.",
    "position_gap": "Randomized positions (after Ruoss et al. 2023, arXiv:2305.16843): training sees gaps, so that "
    "positions up to so many training lengths are no news later. Measured without gaps, unlike there.",
    "table_format": "Mixed precision: cos and sin of RoPE are rounded, attention stays in float32.",
    "extension": "After training, a scaling of RoPE for a longer text: position interpolation is linear "
    "(Chen et al. 2023, arXiv:2306.15595), then NTK, dynamic NTK, YaRN (Peng et al. 2023, arXiv:2309.00071), Llama 3.",
    "times": "How many training lengths the extension is for.",
    "finetune_steps": "Fine-tuning at the new length after the extension; 0: none, as NTK is advertised.",
}


def options_set(setting: Setting) -> str:
    """The options that are not at their defaults, in a line; empty if none."""
    params = [p for p in Setting.params() if p.advanced and getattr(setting, p.name) != p.default]
    return ", ".join(f"{p.name.replace('_', ' ')} = {setting.field_text(p.name)}" for p in params)


def factor_lines(setting: Setting) -> Lines:
    """What dynamic slopes are multiplied by over training."""
    steps = np.unique(np.linspace(1, setting.steps, 400).round())
    values = [slope_factor(int(s), setting.steps, setting.alpha) for s in steps]
    frames = [curves.line("factor", steps, values), curves.guide("0: below it, distance is rewarded", y=0.0)]
    return Lines(curves.together(*frames), (("factor", VERMILLION),), "factor of all slopes")


def last_negative(setting: Setting) -> int:
    """The last step whose factor is negative, 0 if none is."""
    return max((t for t in range(1, setting.steps + 1) if slope_factor(t, setting.steps, setting.alpha) < 0), default=0)


def seen_factor(setting: Setting) -> str:
    """Until when the factor has the wrong sign."""
    last, first = last_negative(setting), slope_factor(1, setting.steps, setting.alpha)
    if not last:
        return f"The factor starts at {first:.2f} and ends at 1: it is never negative with α = {setting.alpha:g}."
    return (
        f"1 + {setting.alpha:g}·log(t/{setting.steps:,}) starts at {first:.2f} and is negative up to step {last:,} of "
        f"{setting.steps:,}: until then every head prefers what is far. It ends at 1, the paper's slopes."
    ).replace("-", "−")


# ------------------------------------------------------------------ what Start does


def time_text(seconds: float) -> str:
    """40 s, 5 min, 2 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.0f} h"


def unit(task: str) -> str:
    """Of a task's loss."""
    return "nats a byte" if task in TEXTS else "nats"


def plan(todo: Work, asked: Asked, most: float, busy: bool = False) -> str:
    """What Start will do, and how long it takes; or why it may not. busy: these runs are being made."""
    if not asked.runs:
        if any(p.key == "text" for p in asked.problems):
            return "There is nothing to train: your text cannot be used. Give a longer one, or empty its box."
        return "There is nothing to train: pick a scheme that can run."
    if not todo.runs:
        return f"Nothing is left to train: {len(asked.runs)} of {count(len(asked.runs), 'run')} measured."
    first = asked.runs[0].setting
    said = (
        f"{count(len(todo.runs), 'run')} of {len(asked.runs)} to train, {first.steps:,} steps at "
        f"{first.train_length} positions each, on one core"
    )
    own = asked.runs[0].text and first.task in TEXTS
    again = "the same link with the same text" if own else "the same link"
    if busy:  # the bar tells how long, at the pace that was measured
        return f"{said}. Results are kept; {again} shows them again."
    said += f": about {time_text(todo.seconds)}."
    if todo.seconds > most:
        return f"{said} That is more than the {time_text(most)} that one start may take here; on your own machine:"
    return f"{said} Results are kept; {again} shows them again.{left_text(todo.left)}"


def left_text(left: Sequence[Left]) -> str:
    """Which runs were begun."""
    if not left:
        return ""
    told = "; ".join(f"{x.run.label}, seed {x.run.seed}, was stopped at step {x.step:,} of {x.total:,}" for x in left)
    return f" {told[0].upper()}{told[1:]}: Start goes on from there."


def command(setting: Setting, schemes: Sequence[Spec], seeds: Sequence[int], text: str = "") -> str:
    """The same runs without the app."""
    given = {"schemes": ", ".join(map(lab.scheme_text, schemes)), "seeds": ",".join(map(str, seeds))}
    given |= {OWN_NAMES.get(k, k.replace("_", "-")): v for k, v in setting.to_query().items()}
    given |= {"text": "your-text.txt"} if text else {}
    return "python -m posenc_core.lab --json results.jsonl " + " ".join(
        f"--{k} {shlex.quote(v)}" for k, v in given.items()
    )


def progress(live: Live) -> tuple[str, float | None]:
    """A sentence on the job and the share that is done while it lives."""
    job, now = live.job, live.progress
    done, total = job.progress
    share = min(1.0, done / total) if total > 0 else 0.0
    where = ""
    if live.now is not None and now is not None:
        where = f"{live.now.label}, seed {live.now.seed}: "
        where += "measuring" if now.phase == "measuring" else f"{now.phase}, step {now.step:,} of {now.total:,}"
    if job.state == "queued":
        return f"Waiting: {count(job.place, 'job')} before yours.", 0.0
    if job.state == "running":
        if job.cancelled():
            return "Stopping…", share
        number = min(len(job.results) + 1, len(live.runs))
        left = job.seconds_left if share > KNOWN_PACE or job.seconds > KNOWN_AFTER else None
        told = "" if left is None else f"; about {time_text(left)} left"
        return f"Run {number} of {len(live.runs)}, {where or 'starting'}{told}", share
    if job.state == "failed":
        return f"Failed: {job.error}. What was measured before is kept.", None
    if job.state == "cancelled":
        return f"Stopped{f' at {where}' if where else ''}. {count(len(job.results), 'run')} made and kept.", None
    return "", None


def nothing_yet(live: Live | None, asked: Asked) -> str:
    """What stands in place of the pictures."""
    if not asked.runs:
        return "Nothing is measured."
    if live is None or live.job.ended or not {r.key for r in live.runs} & {r.key for r in asked.runs}:
        return "Nothing of this setting is measured yet. Start trains it; every run appears as soon as it is done."
    if live.job.state == "queued":
        return "Waiting for other jobs; the first result appears here."
    return "Training; the first result appears here."


def styles(runs: Sequence[Run]) -> dict[str, tuple[str, bool]]:
    """Colour and whether it is dashed, by label: a scheme has its own, its extension the same one dashed."""
    made, colours = dict[str, tuple[str, bool]](), dict[str, str]()
    kept = {SCHEME_COLOURS.get(run.spec.scheme, BLACK) for run in runs}  # by others of these schemes
    for run in runs:
        scheme = lab.scheme_text(run.spec)
        shared = scheme in colours or len(colours) >= len(CATEGORICAL)
        if scheme not in colours:
            own = SCHEME_COLOURS.get(run.spec.scheme, BLACK)
            spare = [c for c in CATEGORICAL if c not in kept]
            free = (c for c in (own, *spare, *CATEGORICAL) if c not in colours.values())
            colours[scheme] = next(free, CATEGORICAL[len(colours) % len(CATEGORICAL)])
        made.setdefault(run.label, (colours[scheme], shared))
    return made


def dashed(runs: Sequence[Run]) -> tuple[str, ...]:
    """Labels whose lines are dashed."""
    return tuple(label for label, (_, is_dashed) in styles(runs).items() if is_dashed)


def live_lines(live: Live) -> Lines | None:
    """Training loss of the runs made and of the one in progress; None before the first step."""
    done = list(live.job.results)
    frames = [curves.line(r.label, *zip(*r.curve, strict=True), strand=i) for i, r in enumerate(done) if r.curve]
    now, losses = live.now, list(live.losses)
    if now is not None and losses and now.key not in {r.key for r in done}:
        frames.append(curves.line(now.label, *zip(*lab.curve(losses), strict=True), strand=len(done)))
    if not frames:
        return None
    series = tuple((label, colour) for label, (colour, _) in styles(live.runs).items())
    return Lines(curves.together(*frames), series, f"training loss ({unit(live.runs[0].setting.task)})")


def tries(view: LabView, schemes: Sequence[Spec], sidebar: Sequence[str]) -> dict[str, list[Try]]:
    """Settings worth a look beside each picture, with the reader's sizes; without those that are shown."""
    now, picked = view.to_query(), list(map(lab.scheme_text, schemes))
    sizes = {k: v for k, v in now.items() if k in ("train_length", "steps", "width", "seeds")}
    found = {
        "by_position": [
            Try("the letter eight back", {"task": "token_back"}, "A precise position: who finds it, how far out?"),
            Try("p-RoPE on recall by content",
                {"task": "recall", "schemes": "rope, rope(rotary_fraction=0.75, scaling=proportional), alibi, none"},
                "Do pairs that do not turn keep what was said, however far back?"),
        ],
        "table": [
            Try("NTK for twice the length", {"extension": "ntk", "schemes": "rope"}, "Nothing is trained for it."),
            Try("interpolation with fine-tuning",
                {"extension": "linear", "times": "4", "finetune_steps": "50", "schemes": "rope"},
                "The dashed line is the same model, its positions squeezed, then tuned for 50 steps."),
        ],
        "training": [
            Try("progressive length", {"curriculum": "progressive"}, "Short first, then doubled three times."),
            Try("learned slopes", {"slope_training": "learned", "schemes": "alibi, alibi+rope"}, "Do they move?"),
        ],
    }  # fmt: skip
    made = {place: [Try(x.label, sizes | dict(x.changes), x.then) for x in items] for place, items in found.items()}
    for text in sidebar:
        wanted = ", ".join([*picked, text])
        if text not in picked and len(picked) < lab.MOST_SCHEMES and len(wanted) <= MOST_TEXT:
            made["by_position"].insert(0, Try(f"{text} from the sidebar", now | {"schemes": wanted}))
    return {place: [x for x in items if not x.changes.items() <= now.items()] for place, items in made.items()}


def other_maps(view: LabView, labels: Sequence[str], shown: str, lengths: Sequence[str]) -> list[Try]:
    """The maps of another line, and of the longest example."""
    now = view.to_query()
    others = [i for i, name in enumerate(labels) if name != shown]
    wanted = next((i for i in others if labels[i] == "alibi"), others[0] if others else None)
    found = []
    if wanted is not None:
        found.append(Try(f"the heads of {labels[wanted]}", now | {"map_scheme": str(wanted)}))
    if view.map_times != lengths[-1]:
        found.append(Try(f"{lengths[-1]} times the length", now | {"map_times": lengths[-1]}))
    return found
