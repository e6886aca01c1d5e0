"""Which scheme for a need: ranked by what the lab measured for it, every reason with the place that shows it.

for choice in rank(Need(task="recall", trained_length=64, target_length=512), evidence):
    print(choice.scheme, choice.score, [str(r) for r in choice.reasons])
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from posenc_core.claims import Evidence
from posenc_core.claims_lab import NEAR_TASKS, P_ROPE, PAST, SEEDS, TASKS, Group, NotMeasured, Sample, family, group
from posenc_core.lab import MEASURED, Metric, Run, label, metric_of
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import HybridSpec, layers_of
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec
from posenc_core.spec import Spec, param

LONGEST = 2**24
HEADS, D_HEAD, ITEM = 8, 64, 4  # of the model that memory is told for, as the Timing page's layer, in float32
SCHEMES = ("none", "sinusoidal", "learned", "rope", "alibi", "alibi+rope", P_ROPE)
PAST_CLAIMS: dict[str, tuple[int, tuple[str, ...]]] = {  # claims about length, and the tasks that they are judged by
    "learned": (5, TASKS),
    "sinusoidal": (6, ("text",)),
    "rope": (12, ("text",)),
    "alibi": (15, ("text", "recall")),
    P_ROPE: (23, ("recall",)),
}
WITHIN_CLAIMS = {"alibi": (17, NEAR_TASKS)}  # claims about the training length
EVERYWHERE_CLAIMS = {"alibi+rope": 21}
YARN = {"text": PAST}  # multiples of the training length that RoPE is extended to; other tasks: EXTENDED
EXTENDED = (4,)

# One sentence in each script.
SAMPLES = {
    "latin": "The cat sleeps on a chair by the window.",
    "cyrillic": "Кошка спит на стуле у окна.",
    "devanagari": "बिल्ली खिड़की के पास कुर्सी पर सो रही है।",
    "cjk": "猫睡在窗边的椅子上。",
}


class Need(Spec):
    """What a model is wanted for."""

    task: Literal["text", "short_texts", "copy", "token_back", "brackets", "recall"] = param(
        "text",
        "text: the next byte; short_texts: unrelated sentences; copy: what followed in a repeating string; token_back: "
        "exact positions; brackets: which one is closed, mostly one nearby; recall: content at any distance, in one "
        "look-up",
    )  # fmt: skip
    trained_length: int = param(
        8192, "bytes of text that the model was trained at, a position each", ge=2, le=LONGEST, unit="bytes",
        ticks=(128, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144),
    )  # fmt: skip
    target_length: int = param(
        131_072, "characters of text that it has to reach, of 1 to 3 bytes each by their script", ge=2, le=LONGEST,
        unit="characters",
        ticks=(1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576, 2_097_152,
               4_194_304, 8_388_608, 16_777_216),
    )  # fmt: skip
    memory: int = param(
        0, "MiB that tables or biases may take in a model at the target length; 0: no limit", ge=0, le=2**20,
        unit="MiB", ticks=(0, 1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536),
    )  # fmt: skip
    precise_positions: bool = param(False, "whether an exact number of positions back matters besides the task")
    languages: Literal["latin", "cyrillic", "devanagari", "cjk", "mixed"] = param(
        "latin", "scripts of the text, which a model of bytes reads as 1 to 3 bytes a character; mixed: the longest"
    )

    @property
    def bytes_per_character(self) -> float:
        """UTF-8 bytes of a character in running text of the script."""
        names = SAMPLES if self.languages == "mixed" else (self.languages,)
        return max(len(SAMPLES[n].encode()) / len(SAMPLES[n]) for n in names)

    @property
    def target(self) -> int:
        """Bytes that the target takes in this script, a position each."""
        return math.ceil(self.target_length * self.bytes_per_character)

    @property
    def ratio(self) -> float:
        """Training lengths that have to be reached."""
        return self.target / self.trained_length

    @property
    def measured(self) -> int:
        """The smallest measured number of training lengths that reaches the target, or the largest there is."""
        return next((n for n in MEASURED if n >= self.ratio), max(MEASURED))


@dataclass(frozen=True)
class Reason:
    """A sentence with what was measured. `page` and `query` show it, an empty page if none does; `claim` is the number
    of a claim about it.

    `condition`: what it depends on, empty for nothing.
    """

    text: str
    page: str
    query: Mapping[str, str]
    claim: int | None = None
    condition: str = ""

    def __str__(self) -> str:
        return self.text + (f" It depends on {self.condition}." if self.condition else "")


@dataclass(frozen=True)
class Choice:
    """A scheme and how well it does, None where nothing is known or nothing is defined.

    score: for each thing asked, how it does beside the best of all, multiplied: for text the probability that it gives
    to the right byte, as a geometric mean (the exponential of the difference in loss a byte), else the share of right
    answers. 1: best at all. fits: whether it keeps the memory limit.
    """

    scheme: str
    score: float | None
    fits: bool
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Candidate:
    """A scheme, perhaps extended by YaRN to `times` training lengths."""

    scheme: str
    times: int = 1

    def runs(self, task: str) -> tuple[Run, ...]:
        """One a seed."""
        return family(self.scheme, task=task, **self._options)

    def group(self, evidence: Evidence, task: str) -> Group:
        """Their results. NotMeasured if one is missing."""
        return group(evidence, self.scheme, task=task, **self._options)

    @property
    def spec(self) -> Spec:
        """The scheme's spec."""
        return family(self.scheme)[0].spec

    @property
    def label(self) -> str:
        """In words: rope, yarn ×4."""
        return label(self.spec, self.runs("text")[0].setting)

    @property
    def _options(self) -> dict[str, object]:
        return {"extension": "yarn", "times": self.times} if self.times > 1 else {}

    def link(self, task: str, best: Candidate | None = None) -> dict[str, str]:
        """The query of the Lab page that shows it, beside the best where one setting of the lab shows both.

        An extension is one for all schemes there, which shows RoPE before it too; hybrids and p-RoPE are not measured
        with one.
        """
        other = best or self
        options = self._options or other._options
        both = [c.scheme for c in (self, other)]
        if options and not set(both) <= {"none", "sinusoidal", "learned", "alibi", "rope"}:
            options = self._options
            both = [self.scheme] if options else both  # what is extended is RoPE, which is then shown without
        told = {"schemes": ", ".join(dict.fromkeys(both)), "task": task, "seeds": ",".join(map(str, SEEDS))}
        return told | {name: str(value) for name, value in options.items()}

    def claim(self, task: str, reached: int) -> int | None:
        """The number of a claim about what is told of it: its measurement in a task at so many training lengths."""
        if self.times > 1:
            return None
        within, tasks = WITHIN_CLAIMS.get(self.scheme, (None, ()))
        if task in tasks and (reached == 1 or task == "token_back"):
            return within
        past, tasks_past = PAST_CLAIMS.get(self.scheme, (None, ()))
        return past if reached > 1 and task in tasks_past else EVERYWHERE_CLAIMS.get(self.scheme)


def _extended(task: str, reached: int) -> Candidate:
    """RoPE with YaRN for at least the multiple wanted, or for the longest that is measured."""
    known = YARN.get(task, EXTENDED)
    return Candidate("rope", min((n for n in known if n >= reached), default=max(known)))


def candidates(task: str, reached: int) -> list[Candidate]:
    """What is ranked for a task at so many training lengths; extension is there where it is past the first."""
    return [*map(Candidate, SCHEMES), *([_extended(task, reached)] if reached > 1 else [])]


@cache
def needed() -> tuple[Run, ...]:
    """The runs that rankings read."""
    tasks = Need.param("task").choices
    made = [run for task in tasks for n in MEASURED for c in candidates(task, n) for run in c.runs(task)]
    return tuple({run.key: run for run in made}.values())


def _precise(candidate: Candidate) -> Candidate:
    """Whose exact positions stand for a candidate's: itself, or RoPE extended as far as that was measured."""
    return candidate if candidate.times == 1 else _extended("token_back", candidate.times)


def position_bytes(spec: Spec, length: int) -> int:
    """Bytes of what a model of 8 heads × 64 holds of positions in float32 while it reads `length` of them.

    Cosines and sines of RoPE's pairs, which its layers share; one added vector a position; ALiBi's bias, one number a
    head and distance, for one layer after the other. Of a hybrid's kinds of layers the sum.
    """
    if isinstance(spec, HybridSpec):
        return sum(position_bytes(s, length) for s in dict.fromkeys(spec.layers))
    if isinstance(spec, RopeSpec):
        return length * 2 * len(spec.replace(d_head=D_HEAD).inv_freq()) * ITEM
    if isinstance(spec, SinusoidalSpec | LearnedSpec):
        return length * HEADS * D_HEAD * ITEM
    return HEADS * (2 * length - 1) * ITEM if isinstance(spec, AlibiSpec) else 0


def rank(need: Need, evidence: Evidence) -> list[Choice]:
    """The schemes, best first: those that keep the memory limit by their score, then the others, then the unknown."""
    reached = need.measured
    tasks = dict.fromkeys([need.task, *(["token_back"] if need.precise_positions else [])])
    made = [_Ranked(c) for c in candidates(need.task, reached)]
    for one in made:
        one.measure(tasks, reached, evidence)
    known = [one for one in made if one.samples]
    best = {task: _best(known, task) for task in tasks if known}
    choices = [one.choice(need, best) for one in made]
    return sorted(choices, key=lambda c: (c.score is None, not c.fits, -(c.score or 0.0)))


def _best(known: Sequence[_Ranked], task: str) -> _Ranked:
    return (min if metric_of(task) == "loss" else max)(known, key=lambda one: one.samples[task].mean)


@dataclass
class _Ranked:
    """A candidate on its way to a choice: its samples a task, or why there are none."""

    candidate: Candidate
    samples: dict[str, Sample] = field(default_factory=dict)
    trained: dict[str, Sample] = field(default_factory=dict)
    why: str = ""

    def measure(self, tasks: Mapping[str, None], reached: int, evidence: Evidence) -> None:
        for task in tasks:
            try:
                source = self.source(task)
                found = source.group(evidence, task)
                self.trained[task] = found.at(1, metric_of(task))
            except NotMeasured:
                self._none(f"{task} was not measured with it")
                return
            try:
                self.samples[task] = found.at(reached, metric_of(task))
            except NotMeasured:
                self._none("it has no value past its training length")
                return

    def source(self, task: str) -> Candidate:
        """What was measured in the task for it."""
        return self.candidate if task != "token_back" else _precise(self.candidate)

    def _none(self, why: str) -> None:
        self.why, self.samples = why, {}

    def choice(self, need: Need, best: Mapping[str, _Ranked]) -> Choice:
        reasons, score = list[Reason](), 1.0 if self.samples else None
        if score is None:
            reasons.append(self._unknown(need, best.get(need.task)))
        for task, sample in self.samples.items():
            share = relative(sample, best[task].samples[task], metric_of(task))
            assert score is not None
            score *= share
            reasons.append(self._measured(need, task, share, best[task]))
        room = position_bytes(self.candidate.spec, need.target)
        fits = not need.memory or room <= need.memory * 2**20
        reasons.append(self._memory(need, room, fits))
        if need.bytes_per_character > 1:
            reasons.append(_script(need))
        return Choice(self.candidate.label, score, fits, tuple(reasons))

    def _unknown(self, need: Need, best: _Ranked | None) -> Reason:
        link = self.candidate.link(need.task, best.source(need.task) if best else None)
        return Reason(f"Not ranked: {self.why}.", "lab", link, self.candidate.claim(need.task, need.measured))

    def _measured(self, need: Need, task: str, share: float, first: _Ranked) -> Reason:
        metric, sample, reached = metric_of(task), self.samples[task], need.measured
        source, best = self.source(task), first.samples[task]
        say = (lambda x: f"{x:.2f} nats a byte") if metric == "loss" else (lambda x: f"{x:.0%} right")
        lengths = "its training length" if reached == 1 else f"{reached} training lengths"
        text = f"{task}: {say(sample.mean)} at {lengths}, {share:.0%} of the best"
        text += "'s probability for the right byte" if metric == "loss" else ""
        if reached > 1:
            text += f"; {say(self.trained[task].mean)} at the training length"
        conditions = list[str]()
        if need.ratio > reached:
            conditions.append(
                f"what comes past {reached} training lengths, which was not measured: {ratio_text(need)} are needed"
            )
        elif need.ratio < reached:
            conditions.append(f"the length: {ratio_text(need)} training lengths are needed, {reached} measured")
        if 1 < source.times < reached:
            conditions.append(f"an extension for {source.times} training lengths, the longest that was measured")
        apart, spread = abs(sample.mean - best.mean), max(sample.spread, best.spread)
        if 0 < apart <= spread:
            conditions.append(
                f"the seed: the best is {apart:.3f} away, among seeds it differs by {spread:.3f}, so they cannot be "
                f"told apart by {len(sample.values)} seeds"
            )
        link = source.link(task, first.source(task))
        return Reason(text + ".", "lab", link, source.claim(task, reached), "; ".join(conditions))

    def _memory(self, need: Need, room: int, fits: bool) -> Reason:
        limit = f", {'within' if fits else 'more than'} {need.memory:,} MiB" if need.memory else ""
        spec = self.candidate.spec
        bias = any(isinstance(s, AlibiSpec) for s in layers_of(spec))
        rows = ", the bias as one number a head and distance" if bias else ""
        text = (
            f"Positions take {size_text(room)} in a model of {HEADS} heads × {D_HEAD} in float32 "
            f"at {need.target:,} bytes{rows}{limit}."
        )
        made = size_text(HEADS * need.target**2 * ITEM)
        condition = f"the kernel: one that wants a bias for every query and key needs {made}" if bias else ""
        return Reason(text, "", {}, 16 if bias else None, condition)  # the Timing page shows whole layers


def relative(sample: Sample, best: Sample, metric: Metric) -> float:
    """A sample beside the best one, 0 to 1."""
    if metric == "loss":
        return math.exp(best.mean - sample.mean)
    return sample.mean / best.mean if best.mean else 1.0


def _script(need: Need) -> Reason:
    text = (
        f"{need.target_length:,} characters are {need.target:,} bytes in {need.languages} scripts "
        f"({need.bytes_per_character:.1f} a character), {ratio_text(need)} training lengths."
    )
    return Reason(text, "", {}, None, "the tokenizer: one trained on the script needs fewer tokens")


def ratio_text(need: Need) -> str:
    """Training lengths that are needed, with as many digits as tell them from those that were measured."""
    if need.ratio >= 100:
        return f"{need.ratio:,.0f}"
    if need.ratio < 0.01:
        return "less than 0.01"
    texts = [f"{need.ratio:.{digits}g}" for digits in (3, 6, 9, 12)]
    return next((t for t in texts if float(t) not in MEASURED), texts[0])


def size_text(count: int) -> str:
    """Bytes in the largest unit that leaves a number from 1."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:,.3g} {unit}" if count < 1000 * size else f"{count / size:,.0f} {unit}"
    return f"{count} bytes"
