import io
import json
import math
import pickle
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields, replace
from itertools import count, islice
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import ROOT, any_spec, within

from posenc_core import SCHEMES, SpecError, lab
from posenc_core.extension import methods
from posenc_core.lab import (
    BINS,
    CURVE,
    DEFAULT_SCHEMES,
    MAX_SEED,
    TIMES,
    Execution,
    Result,
    Run,
    Setting,
    curve,
    extend,
    groups,
    measure,
    parse_schemes,
    perform,
    round_to_half,
    runs,
    scheme_text,
)
from posenc_core.model import ToyModel
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import MAX_TEXT, HybridSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec
from posenc_core.tasks import TEXTS
from posenc_core.train import ByPosition, Trainer, alibis, by_position, new_model

TINY = Setting(train_length=16, steps=10, width=16)
EXTENDED = TINY.replace(extension="yarn", times=2, finetune_steps=4)
HYBRID = HybridSpec(layers=(AlibiSpec(), RopeSpec()))
TEXT = "A sentence of some words, with a number: {}. " * 40
EXTENSIONS = [c for c in Setting.param("extension").choices if c != "off"]
schemes = pytest.mark.parametrize("cls", SCHEMES.values(), ids=SCHEMES)


def problems_of(make):
    with pytest.raises(SpecError) as caught:
        make()
    return caught.value.problems


def only_problem(make):
    (problem,) = problems_of(make)
    return problem


# ------------------------------------------------------------------ schemes as a text


def test_the_default_schemes():
    made = parse_schemes(DEFAULT_SCHEMES)
    assert made == (NoneSpec(), SinusoidalSpec(), LearnedSpec(), RopeSpec(), AlibiSpec(), HYBRID)
    assert ", ".join(map(scheme_text, made)) == DEFAULT_SCHEMES
    assert runs(made, Setting(), (0, 1, 2))[1] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rope", [RopeSpec()]),
        (" rope ,\nalibi ", [RopeSpec(), AlibiSpec()]),
        ("rope;alibi", [RopeSpec(), AlibiSpec()]),
        ("rope,,rope, ", [RopeSpec()]),
        ("rope+rope", [RopeSpec()]),
        ("rope*2", [RopeSpec()]),
        ("alibi+rope(base=5e5, layout=interleaved)",
         [HybridSpec(layers=(AlibiSpec(), RopeSpec(base=5e5, layout="interleaved")))]),
        ("rope(base=1e+12)", [RopeSpec(base=1e12)]),
        ("rope(base=1e+12)+alibi(slopes=0.5,0.25, n_heads=2), none",
         [HybridSpec(layers=(RopeSpec(base=1e12), AlibiSpec(slopes=(0.5, 0.25), n_heads=2))), NoneSpec()]),
        ("hybrid", [HYBRID]),
        ("learned + rope", [HybridSpec(layers=(LearnedSpec(), RopeSpec()))]),
    ],
)  # fmt: skip
def test_schemes_by_hand(text, expected):
    assert list(parse_schemes(text)) == expected


def without_sizes(spec):
    """The layers, each with the default sizes where it allows them."""
    made = []
    for layer in spec.layers if isinstance(spec, HybridSpec) else (spec,):
        data = layer.to_mapping()
        try:
            kept = {n: v for n, v in data.items() if n not in ("scheme", "d_model", "d_head", "n_heads",
                                                               "max_position_embeddings")}  # fmt: skip
            made.append(type(layer)(**kept))
        except SpecError:
            made.append(layer)
    return made


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(any_spec())
def test_a_scheme_is_read_back_from_its_text(spec):
    text, layers = scheme_text(spec), without_sizes(spec)
    assume(len(text) <= MAX_TEXT)
    (made,) = parse_schemes(text)
    assert (list(made.layers) if isinstance(made, HybridSpec) else [made] * len(layers)) == layers
    assert len(set(layers)) > 1 or made == layers[0]
    if made == layers[0] or isinstance(made, HybridSpec):
        assert parse_schemes(scheme_text(made)) == (made,)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(any_spec(), min_size=1, max_size=4))
def test_several_schemes_are_read_back(specs):
    text = ", ".join(map(scheme_text, specs))
    assume(len(text) <= MAX_TEXT)
    expected = dict.fromkeys(s for spec in specs for s in parse_schemes(scheme_text(spec)))
    assert parse_schemes(text) == tuple(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "schemes = '' is not legal (0 given); legal: 1 to 16 schemes, such as rope"),
        (" ,; ", "0 given"),
        (", ".join(f"rope(base={n})" for n in range(100, 117)), "(17 given); legal: 1 to 16"),
        ("rpoe", "scheme = 'rpoe' is not legal; legal: one of none, integer"),
        ("rope(base=0.5)", "rope.base = 0.5 is not legal; legal: a number from 1.001 to 1e+12"),
        ("rope(bass=5)", "rope.bass = '5' is not legal (unknown name)"),
        ("rope(", "cannot be read from here on"),
        ("rope)", "cannot be read from here on"),
        ("(rope", "cannot be read from here on"),
        ("rope alibi", "cannot be read from here on"),
        ("rope*0", "no times"),
        ("alibi+sinusoidal", "sinusoidal acts before layer 1, so it can only be the first layer's"),
        ("hybrid+rope", "a layer cannot be a hybrid itself"),
        ("none," * 1000, "(5,000 given); legal: at most 4,096 characters"),
    ],
)
def test_schemes_that_cannot_be_read(text, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        parse_schemes(text)


@settings(deadline=None)
@given(st.text(alphabet="rope,;+*()= alibi12.e", max_size=60))
def test_no_text_crashes(text):
    made = None
    with suppress(SpecError):
        made = parse_schemes(text)
    assert made is None or parse_schemes(", ".join(map(scheme_text, made))) == made


def test_a_long_text_does_not_take_long():
    for text in ("," * 10**6, "+" * 10**6, "(" * 10**6, ",(" * 2000, "rope+" * 800, "+(" * 2000):
        with within(10), pytest.raises(SpecError):
            parse_schemes(text)


# ------------------------------------------------------------------ runs and their keys


def test_sizes_are_the_labs():
    run = Run(LearnedSpec(offset=2, d_model=512, max_position_embeddings=9), TINY.replace(position_gap=4))
    assert run.sized == LearnedSpec(offset=2, d_model=16, max_position_embeddings=66)
    assert Run(RopeSpec(d_head=128), TINY).sized == RopeSpec(d_head=4)
    assert Run(AlibiSpec(n_heads=32), TINY).sized == AlibiSpec(n_heads=4)
    assert Run(HYBRID, TINY).sized == HybridSpec(layers=(AlibiSpec(n_heads=4), RopeSpec(d_head=4)))
    config = Run(HYBRID, TINY, seed=7).config
    assert (config.length, config.steps, config.warmup, config.seed, config.batch) == (16, 10, 2, 7, 32)
    assert Run(NoneSpec()).config.warmup == 50


SAME = {
    "sizes": (RopeSpec(), RopeSpec(d_head=32), {}),
    "rows": (LearnedSpec(), LearnedSpec(max_position_embeddings=1024), {}),
    "layers alike": (RopeSpec(), HybridSpec(layers=(RopeSpec(), RopeSpec())), {}),
    "layers alike in these sizes": (AlibiSpec(), HybridSpec(layers=(AlibiSpec(), AlibiSpec(n_heads=2))), {}),
    "no slopes to train": (RopeSpec(), RopeSpec(), {"slope_training": "learned"}),
    "no slopes to change": (NoneSpec(), NoneSpec(), {"slope_training": "dynamic", "alpha": 1.5}),
    "no tables": (AlibiSpec(), AlibiSpec(), {"table_format": "float16"}),
    "no rope to extend": (AlibiSpec(), AlibiSpec(), {"extension": "yarn", "times": 8}),
    "nothing to extend to": (RopeSpec(), RopeSpec(), {"extension": "none", "times": 8}),
    "a table is not extended": (LearnedSpec(), LearnedSpec(), {"extension": "ntk"}),
    "no positions": (NoneSpec(), NoneSpec(), {"position_gap": 4}),
}


@pytest.mark.parametrize(("a", "b", "options"), SAME.values(), ids=SAME)
def test_equal_work_has_an_equal_key(a, b, options):
    """Checked by doing the work too."""
    first, second = Run(a, TINY), Run(b, TINY.replace(**options))
    assert first.key == second.key
    assert first.setting == second.setting == TINY
    (one,), (two,) = perform([first]), perform([second])
    assert alike(one, two)
    assert len(runs([a, b], TINY, (0,))[0]) == 1


def test_an_extension_of_no_rope_is_fine_tuning_alone():
    yarn, linear = (Run(AlibiSpec(), EXTENDED.replace(extension=e)) for e in ("yarn", "linear"))
    assert yarn.key == linear.key != Run(AlibiSpec(), TINY).key
    assert yarn.setting.extension == "none"


BASE = Setting(task="token_back", extension="yarn", slope_training="dynamic", finetune_steps=20)
OTHER = {
    "task": "recall", "back": 9, "train_length": 72, "steps": 601, "width": 72, "curriculum": "progressive",
    "slope_training": "learned", "alpha": 0.55, "position_gap": 2, "table_format": "float16", "extension": "ntk",
    "times": 4, "finetune_steps": 21,
}  # fmt: skip


def test_every_field_that_acts_changes_the_key():
    assert set(OTHER) == {p.name for p in Setting.params()}
    keys = {Run(HYBRID, BASE).key}
    for name, value in OTHER.items():
        undone = {"back": 8} if name == "task" else {"alpha": 0.5} if name == "slope_training" else {}
        keys.add(Run(HYBRID, BASE.replace(**{name: value} | undone)).key)
    keys.add(Run(HYBRID, BASE, seed=1).key)
    keys |= {Run(spec, BASE).key for spec in (RopeSpec(), RopeSpec(base=9e3), AlibiSpec())}
    assert len(keys) == 1 + len(OTHER) + 1 + 3


def test_a_text_acts_on_tasks_that_read_one():
    keys = {(task, text): Run(RopeSpec(), TINY.replace(task=task), text=text).key
            for task in ("text", "short_texts", "copy") for text in ("", TEXT, TEXT + ".")}  # fmt: skip
    assert len(set(keys.values())) == 7
    assert keys["copy", ""] == keys["copy", TEXT]
    assert Run(RopeSpec(), TINY.replace(task="copy"), text=TEXT).text == ""


def test_the_recipe_is_part_of_the_key(monkeypatch):
    before = Run(RopeSpec(), TINY).key
    monkeypatch.setattr(lab, "RECIPE", lab.RECIPE + 1)
    assert Run(RopeSpec(), TINY).key != before


def test_the_key_of_the_default_run():
    """A change here makes every kept result another's: raise RECIPE and make the shipped results anew."""
    assert Run(RopeSpec()).key == "2214bcffc3e57c9d60fdb162bd40b10e"


def test_the_key_of_a_run_without_a_text():
    assert Run(HYBRID, Setting(task="recall")).key == "e5bfb0f6509be7ac50ca43ddf95731e2"
    assert Run(AlibiSpec(), BASE, seed=3).key == "940c3def2f65e5cec69e21446dab0f89"


PINNED = {
    "text": (RopeSpec(), TINY, TEXT, [6.14756, 5.98715, 5.82828]),
    "recall": (AlibiSpec(), TINY.replace(task="recall", slope_training="dynamic"), "", [6.27529, 5.79123, 5.75504]),
    "copy": (
        HYBRID,
        TINY.replace(task="copy", curriculum="progressive", position_gap=2),
        "",
        [6.25403, 6.19766, 5.76466],
    ),
    "brackets": (SinusoidalSpec(), TINY.replace(task="brackets"), "", [6.869, 6.64692, 6.41723]),
    "token_back": (RopeSpec(), TINY.replace(task="token_back"), "", [5.90749, 5.962, 5.88118]),
    "short_texts": (LearnedSpec(), TINY.replace(task="short_texts"), TEXT, [6.12878, 5.94153, 5.59958]),
}


@pytest.mark.parametrize(("spec", "setting", "text", "losses"), PINNED.values(), ids=PINNED)
def test_the_first_losses_of_a_recipe(spec, setting, text, losses):
    """A change here means that the same run gives other numbers: raise RECIPE."""
    made = [p.loss for p in islice(Execution(Run(spec, setting, text=text)), 3)]
    assert made == pytest.approx(losses, abs=2e-4), f"RECIPE is {lab.RECIPE}"


def test_a_run_pickles_and_its_caches_do_not_matter():
    for run in (Run(HYBRID, EXTENDED, 3), Run(RopeSpec(), TINY, text=TEXT)):
        _ = run.key, run.sized, run.corpus
        data = pickle.dumps(run)
        assert len(data) < 20_000  # without the text of the shipped corpus
        again = pickle.loads(data)
        assert again == run
        assert hash(again) == hash(run)
        assert (again.key, again.sized, again.extended) == (run.key, run.sized, run.extended)
        fresh = Run(run.spec, run.setting, run.seed, run.text)
        assert fresh == run
        assert {fresh, run, again} == {run}
        assert set(vars(again)) >= {f.name for f in fields(Run)}


# ------------------------------------------------------------------ refused


def many(*names):
    return ", ".join(names)


@pytest.mark.parametrize(
    ("make", "name", "value", "legal"),
    [
        (lambda: Run(RopeSpec(), seed=-1), "seeds", -1, f"whole numbers from 0 to {MAX_SEED:,}"),
        (lambda: Run(RopeSpec(), seed=MAX_SEED + 1), "seeds", MAX_SEED + 1, f"whole numbers from 0 to {MAX_SEED:,}"),
        (lambda: Run(HybridSpec(layers=(AlibiSpec(), RopeSpec(), NoneSpec()))), "schemes", "alibi+rope+none",
         "at most 2 layers, as the model has"),
        (lambda: Run(LearnedSpec(), EXTENDED), "extension", "yarn", "off"),
        (lambda: Run(IntegerSpec(variant="one_hot"), EXTENDED), "extension", "yarn", "off"),
        (lambda: Run(HybridSpec(layers=(LearnedSpec(), RopeSpec())), EXTENDED.replace(finetune_steps=0)), "extension",
         "yarn", "off"),
        (lambda: Run(RopeSpec(scaling="proportional", rotary_fraction=0.5), EXTENDED), "extension", "yarn",
         "off, none"),
        (lambda: Run(RopeSpec(rotary_fraction=0.5), EXTENDED.replace(extension="ntk")), "extension", "ntk",
         "off, none, linear, ntk_by_parts, yarn, llama3"),
        (lambda: Run(RopeSpec(), TINY, text="short"), "text", "short", "at least 330 bytes"),
        (lambda: Run(RopeSpec(), TINY, text="x" * 329), "text", "x" * 329, "at least 330 bytes"),
        (lambda: Run(RopeSpec(), TINY.replace(task="short_texts"), text="a b. " * 100), "text", "a b. " * 100,
         "sentences of 16 bytes or more, in its last tenth too"),
        (lambda: Run(AlibiSpec(slopes=(1.0,) * 8)), "slopes", (1.0,) * 8, "4 numbers, one a head, or none"),
        (lambda: Run(RopeSpec(), TINY.replace(task="token_back", back=16)), "back", 16,
         "a whole number from 1 to 15, below train_length"),
        (lambda: Setting(train_length=15), "train_length", 15, "a whole number from 16 to 512 in steps of 8"),
        (lambda: Setting(train_length=10**9), "train_length", 10**9, "a whole number from 16 to 512 in steps of 8"),
        (lambda: Setting(steps=10**9), "steps", 10**9, "a whole number from 10 to 20,000"),
        (lambda: Setting(width=18), "width", 18, "a whole number from 16 to 256 in steps of 8"),
        (lambda: Setting(times=4), "times", 4, "read only while extension is " + " or ".join(EXTENSIONS)),
        (lambda: Setting(extension="pi"), "extension", "pi", "one of off, " + many(*EXTENSIONS)),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(make, name, value, legal):
    problem = only_problem(make)
    assert (problem.name, problem.value, problem.legal) == (name, value, legal)


def test_the_shortest_texts_and_the_longest_back_are_allowed():
    for make in (lambda: Run(RopeSpec(), TINY, text="x" * 330),
                 lambda: Run(RopeSpec(), TINY.replace(task="token_back", back=15))):  # fmt: skip
        (result,) = perform([make()])
        assert all(x is not None for x in result.loss[-BINS // 2 :])


def test_checking_an_extension_allocates_no_table():
    """A link may name a table of 2^20 rows of 16384 features: 64 GB."""
    huge = LearnedSpec(max_position_embeddings=2**20, d_model=16384)
    assert only_problem(lambda: Run(huge, EXTENDED)).name == "extension"


@schemes
def test_runs_lists_every_scheme_and_seed(cls):
    made, problems = runs([cls(), NoneSpec()], TINY, (0, 5, 5))
    assert problems == []
    expected = dict.fromkeys((spec, seed) for spec in (cls(), NoneSpec()) for seed in (0, 5))
    assert [(r.spec, r.seed) for r in made] == list(expected)


def test_runs_bring_their_bases_and_tell_what_cannot_run():
    three = HybridSpec(layers=(AlibiSpec(), RopeSpec(), NoneSpec()))
    made, problems = runs([RopeSpec(), LearnedSpec(), AlibiSpec(), three], EXTENDED, (0, -1))
    assert [(r.spec.scheme, r.setting.extension, r.total) for r in made] == [
        ("rope", "off", 10), ("rope", "yarn", 4), ("alibi", "off", 10), ("alibi", "none", 4)
    ]  # fmt: skip
    assert [p.name for p in problems] == ["seeds", "extension", "schemes"]
    parts = groups(made)
    assert [[r.label for r in part] for part in parts] == [["rope", "rope, yarn ×2, 4 steps"],
                                                           ["alibi", "alibi, unscaled ×2, 4 steps"]]  # fmt: skip
    assert groups(made[::-1]) == parts[::-1]


# ------------------------------------------------------------------ extensions


@pytest.mark.parametrize("name", [n for n in EXTENSIONS if n != "none"])
@pytest.mark.parametrize("spec", [RopeSpec(base=500.0), RopeSpec(scaling="linear", factor=3.0, layout="interleaved")])
def test_the_extended_spec_is_that_of_the_methods(name, spec):
    setting = Setting(extension=name, times=4, train_length=32, finetune_steps=7)
    run = Run(spec, setting)
    expected = methods(spec.replace(d_head=16), 32, 128)[name]
    assert run.extended == expected
    assert expected.scaling == name
    assert expected.factor == 4.0
    hybrid = Run(HybridSpec(layers=(AlibiSpec(), spec)), setting)
    assert hybrid.extended == HybridSpec(layers=(AlibiSpec(n_heads=4), expected))
    assert run.config.spec == run.base.sized == run.sized == spec.replace(d_head=16)
    assert run.base == Run(spec, Setting(train_length=32))
    assert run.base.extended == run.sized


def test_fine_tuning_is_longer_with_as_many_tokens():
    run = Run(RopeSpec(), Setting(extension="yarn", times=4, finetune_steps=50, curriculum="progressive",
                                  position_gap=2, table_format="float16"), seed=3)  # fmt: skip
    config = run.finetuning
    assert (config.length, config.batch, config.steps, config.warmup, config.seed) == (256, 8, 50, 10, 3)
    assert config.length * config.batch == run.config.length * run.config.batch
    assert (config.curriculum, config.position_gap, config.learning_rate) == ("fixed", 1, 1e-3)
    assert config.spec == run.extended
    assert (run.total, run.base.total) == (50, 600)


def test_extending_keeps_weights_slopes_and_the_format():
    setting = TINY.replace(extension="linear", slope_training="learned", table_format="float16")
    run = Run(HYBRID, setting)
    model = new_model(run.config)
    (alibi,) = alibis(model)
    alibi.slopes.data += 0.25
    before = {n: t.clone() for n, t in model.state_dict().items()}
    extend(model, run)
    assert model.encoding.spec == run.extended
    assert [n for n, _ in model.named_parameters() if "slopes" in n] == [n for n in before if "slopes" in n]
    for name, t in model.state_dict().items():
        assert torch.equal(t, before[name])
    rope = model.encoding.layers[1]
    assert rope.table_dtype == torch.float16
    assert rope.spec.scaling == "linear"


# ------------------------------------------------------------------ executions

MADE = {
    "plain": Run(RopeSpec(), TINY),
    "none": Run(NoneSpec(), TINY.replace(task="brackets")),
    "learned": Run(LearnedSpec(), TINY.replace(position_gap=2)),
    "one hot": Run(IntegerSpec(variant="one_hot"), TINY),
    "own text": Run(SinusoidalSpec(), TINY, text=TEXT),
    "slopes": Run(AlibiSpec(), TINY.replace(slope_training="learned", task="copy")),
    "dynamic slopes": Run(AlibiSpec(), TINY.replace(slope_training="dynamic", task="short_texts")),
    "tuned": Run(RopeSpec(), EXTENDED.replace(task="recall"), 2),
    "not tuned": Run(RopeSpec(), TINY.replace(extension="dynamic", times=4)),
    "hybrid tuned": Run(HYBRID, EXTENDED.replace(extension="linear", slope_training="learned", task="token_back",
                                                 curriculum="progressive", position_gap=2, table_format="float16")),
    "unscaled": Run(AlibiSpec(), EXTENDED.replace(slope_training="dynamic", finetune_steps=3)),
}  # fmt: skip


def finished(execution):
    progress = list(execution)
    assert execution.result is not None
    return progress, execution.result


def alike(*results):
    """Equal to the last bit in all but when and where."""
    first, *others = (replace(r, seconds=0.0, machine={}) for r in results)
    return all(r == first for r in others)


def kept(state):
    """As a file keeps it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("run", MADE.values(), ids=MADE)
def test_every_way_to_make_a_run_gives_the_same(run):
    """With its group, alone, on a base trained before (frozen, as a store gives it), and after any interruption."""
    *_, expected = perform([run.base, run])
    progress, alone = finished(Execution(run))
    assert alike(alone, expected)
    assert expected.key == run.key
    assert (expected.spec, expected.setting, expected.seed) == (run.sized, run.setting, run.seed)
    steps = 10 + (run.setting.finetune_steps if run.setting.extension != "off" else 0)
    assert [(p.step, p.total) for p in progress] == [*((i, steps) for i in range(1, steps + 1)), (steps, steps)]
    phases = ["training"] * 10 + ["fine-tuning"] * (steps - 10) + ["measuring"]
    assert [p.phase for p in progress] == phases
    assert (expected.curve[-1][0] if expected.curve else 0) == run.total
    assert alike(perform([run])[0], expected)
    if run.base != run:
        base = Execution(run.base)
        _, of_base = finished(base)
        assert alike(of_base, perform([run.base, run])[0])
        before = {n: t.clone() for n, t in base.model.state_dict().items()}
        progress, tuned = finished(Execution(run, base.model.eval().requires_grad_(False)))
        assert alike(tuned, expected)
        assert [p.total for p in progress] == [run.total] * (run.total + 1)
        for name, t in base.model.state_dict().items():
            assert torch.equal(t, before[name])  # the base is not trained on
    for stop in {1, 10, steps}:
        begun = Execution(run)
        assert begun.state_dict() == {}
        for _ in islice(begun, stop):
            pass
        again = Execution(run, state=kept(begun.state_dict()))
        progress, result = finished(again)
        assert alike(result, expected), stop
        assert [p.step for p in progress] == [*range(stop + 1, steps + 1), steps]
        assert again.state_dict() == {}


def test_an_interrupted_fine_tuning_on_a_base_goes_on():
    run, base = MADE["tuned"], Execution(MADE["tuned"].base)
    finished(base)
    _, expected = finished(Execution(run, base.model))
    begun = Execution(run, base.model)
    list(islice(begun, 2))
    progress, result = finished(Execution(run, base.model, kept(begun.state_dict())))
    assert alike(result, expected)
    assert [(p.step, p.total) for p in progress] == [(3, 4), (4, 4), (4, 4)]


def test_seconds_are_those_of_its_own_steps(monkeypatch):
    """By a clock that goes on by 1 a look."""
    clock = count()
    monkeypatch.setattr(lab, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    base, run = perform([MADE["tuned"].base, MADE["tuned"]])
    assert (base.seconds, run.seconds) == (10.0, 4.0)
    _, alone = finished(Execution(MADE["tuned"]))
    assert alone.seconds == 4.0
    begun = Execution(MADE["tuned"])
    list(islice(begun, 12))
    _, again = finished(Execution(MADE["tuned"], state=kept(begun.state_dict())))
    assert again.seconds == 4.0


def test_measuring_ends_early_once_told_to_stop():
    execution, stop = Execution(MADE["plain"]), []
    for progress in execution.steps(lambda: bool(stop)):
        if progress.phase == "measuring":
            stop.append(True)
    assert execution.result is None


def test_what_is_measured_is_what_a_file_keeps():
    execution = Execution(MADE["slopes"])
    _, result = finished(execution)
    for t in execution.model.state_dict().values():
        assert torch.equal(t, t.half().float())
    (alibi,) = alibis(execution.model)
    assert result.slopes == tuple(round(x, 6) for x in alibi.slopes.tolist())
    dynamic = perform([MADE["dynamic slopes"]])[0]
    assert dynamic.slopes == (0.25, 0.0625, 0.015625, 0.003906)
    assert perform([MADE["plain"]])[0].slopes == ()


def test_rounding_to_half():
    model = ToyModel(RopeSpec(), Run(RopeSpec(), TINY).size)
    weights = [p.detach().clone() for p in model.parameters()]
    round_to_half(model)
    for before, after in zip(weights, model.parameters(), strict=True):
        assert torch.equal(after, before.half().float())


# ------------------------------------------------------------------ measuring


def untrained(run):
    model = new_model(run.config)
    if run.setting.extension != "off":
        extend(model, run)
    return model


def binned(values, width):
    parts = [values[i : i + width] for i in range(0, len(values), width)]
    means = []
    for part in parts:
        known = [x for x in part if not math.isnan(x)]
        means.append(sum(known) / len(known) if known else math.nan)
    return means


@pytest.mark.parametrize("task", ["text", "short_texts", "copy", "token_back", "brackets", "recall"])
def test_measured_bins_by_hand(task):
    """Every bin of an eighth of the length, to 16 times it, over the same examples as by_position has."""
    run = Run(RopeSpec(), TINY.replace(task=task))
    model, made = untrained(run), run.setting.make_task(run.corpus)
    loss, accuracy = measure(run, model, made)
    assert loss.shape == accuracy.shape == (TIMES * BINS,)
    found = by_position(model, made.held_out(128, 256, 16), 16)
    assert loss.tolist() == pytest.approx(binned(found.loss.tolist(), 2), abs=1e-5, nan_ok=True)
    assert accuracy.tolist() == pytest.approx(binned(found.accuracy.tolist(), 2), abs=1e-9, nan_ok=True)
    if task in TEXTS:
        assert loss.isfinite().all()


def test_dynamic_ntk_is_measured_in_windows_that_grow():
    run = Run(RopeSpec(), TINY.replace(extension="dynamic", times=4))
    model, task = untrained(run), run.setting.make_task(run.corpus)
    loss, accuracy = (x.tolist() for x in measure(run, model, task))
    start = 0
    for end in (16, 32, 64, 128, 256):
        found = by_position(model, task.held_out(128, end, 16), 16)
        for made, values in ((loss, found.loss), (accuracy, found.accuracy)):
            part = binned(values.tolist()[start:], 2)
            assert made[start // 2 : end // 2] == pytest.approx(part, abs=1e-5)
        start = end
    alone = Run(RopeSpec(), TINY)
    plain, _ = measure(alone, untrained(alone), task)
    assert loss[:8] == pytest.approx(plain[:8].tolist(), abs=1e-5)  # within the training length nothing is scaled
    assert loss[8:] != pytest.approx(plain[8:].tolist(), abs=1e-3)


@pytest.mark.parametrize("train_length", [16, 128, 512])
@pytest.mark.parametrize("extension", ["yarn", "dynamic"])
def test_every_window_and_scaling_answers_for_the_same_bytes(train_length, extension, monkeypatch):
    """And no more than a bounded number of tokens runs at a time."""
    asked = []

    def counted(model, examples, batch, should_stop):
        shape = examples.tokens.shape
        assert batch * shape[1] <= lab.BATCH_TOKENS
        assert examples.tokens.numel() <= 1.1 * lab.TOKENS
        asked.append((shape[1], {tuple(sorted(examples.targets[:, end - train_length : end].flatten().tolist()))
                                 for end in range(train_length, shape[1] + 1, train_length)}))  # fmt: skip
        return ByPosition(*torch.ones(2, shape[1]).double())

    run = Run(RopeSpec(), Setting(train_length=train_length, width=16, extension=extension))
    monkeypatch.setattr(lab, "by_position", counted)
    loss, _ = measure(run, untrained(run), run.setting.make_task(run.corpus))
    assert loss.tolist() == [1.0] * TIMES * BINS
    times = [1, 2, 4, 8, 16] if extension == "dynamic" else [16]
    assert [length for length, _ in asked] == [n * train_length for n in times]
    assert len(set.union(*(same for _, same in asked))) == 1


def test_own_text_is_measured_as_far_as_it_goes():
    run = Run(RopeSpec(), TINY, text=TEXT[:1000])
    loss, _ = measure(run, untrained(run), run.setting.make_task(run.corpus))
    assert len(run.corpus.held_out) == 100
    assert loss.shape == (49,)
    assert loss.isfinite().all()
    (result,) = perform([run])
    assert not math.isnan(result.at(6))
    assert math.isnan(result.at(7))  # only a part of that stretch is there


def test_a_table_is_measured_to_its_end():
    for gap in (1, 4):
        run = Run(LearnedSpec(offset=2), TINY.replace(position_gap=gap))
        loss, accuracy = measure(run, untrained(run), run.setting.make_task(run.corpus))
        assert loss.isnan().tolist() == accuracy.isnan().tolist() == [i >= gap * BINS for i in range(TIMES * BINS)]


def test_told_to_stop_nothing_is_measured():
    run = MADE["plain"]
    assert measure(run, untrained(run), run.setting.make_task(run.corpus), lambda: True) is None


MEASURE = """
import resource, sys, torch
torch.set_num_threads(1)
from posenc_core import lab
from posenc_core.train import by_position, new_model
from posenc_core.tasks import Batch
run = lab.Run(lab.parse_schemes("alibi")[0], lab.Setting(train_length=512, width=64))
model = new_model(run.config)
examples = run.setting.make_task(run.corpus).held_out(17, 16 * 512, 512)
batch = lab.BATCH_TOKENS // (16 * 512)
few = Batch(examples.tokens[:batch], examples.targets[:batch])
by_position(model, Batch(few.tokens[:, :64], few.targets[:, :64]), batch)
unit = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
assert by_position(model, few, batch).loss.isfinite().all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before)
"""


def test_measuring_at_16_times_512_takes_bounded_memory():
    """One pass as `measure` makes it; the whole bias would be 1 GB a layer and its scores as much again."""
    made = subprocess.run([sys.executable, "-c", MEASURE], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    assert int(made.stdout) < 400e6


# ------------------------------------------------------------------ results


def result(**changes):
    base = {
        "key": "k", "spec": RopeSpec(d_head=4), "setting": TINY, "seed": 0, "curve": ((1, 2.5),),
        "loss": tuple(range(TIMES * BINS)), "accuracy": tuple(i / 128 for i in range(TIMES * BINS)), "slopes": (),
        "seconds": 1.5, "machine": {"cpu": "x", "threads": 1},
    }  # fmt: skip
    return Result(**base | changes)


def test_at_by_hand():
    made = result()
    for times in range(1, TIMES + 1):
        last = 8 * times - 1
        assert made.at(times) == (last + last - 1 + last - 2 + last - 3) / 4
        assert made.at(times, "accuracy") == pytest.approx((last - 1.5) / 128)
    assert math.isnan(made.at(0))
    assert math.isnan(made.at(17))
    gap = result(loss=tuple(None if i == 13 else 1.0 for i in range(24)), accuracy=(None,) * 128)
    assert (gap.at(1), gap.at(3)) == (1.0, 1.0)
    assert math.isnan(gap.at(2))
    assert math.isnan(gap.at(4))
    assert math.isnan(result(loss=(1.0,) * 14).at(2))
    assert math.isnan(gap.at(1, "accuracy"))


@pytest.mark.parametrize("run", MADE.values(), ids=MADE)
def test_a_result_survives_json(run):
    (made,) = perform([run])
    text = json.dumps(made.to_mapping())
    assert "NaN" not in text
    again = Result.from_mapping(json.loads(text))
    assert again == made
    assert json.dumps(again.to_mapping()) == text
    assert again.label == run.label
    assert Run(again.spec, again.setting, again.seed, run.text).key == run.key
    assert len(made.loss) == len(made.accuracy) <= TIMES * BINS
    assert all(x is None or x > 0 for x in made.loss)
    assert all(x is None or 0 <= x <= 1 for x in made.accuracy)
    assert made.seconds > 0 or run.total == 0


@pytest.mark.parametrize("data", [{}, [], None, {"key": 1}, {**result().to_mapping(), "more": 1},
                                  {**result().to_mapping(), "spec": {"scheme": "rpoe"}},
                                  {**result().to_mapping(), "setting": {"steps": 1}},
                                  {**result().to_mapping(), "curve": None},
                                  {n: v for n, v in result().to_mapping().items() if n != "loss"}])  # fmt: skip
def test_what_is_no_result_is_refused(data):
    with pytest.raises((KeyError, TypeError, SpecError)):
        Result.from_mapping(data)


@given(st.lists(st.floats(0, 10), max_size=400))
def test_a_curve_keeps_the_mean_and_few_points(losses):
    made = curve(losses)
    assert len(made) <= CURVE
    ends = [end for end, _ in made]
    assert ends == sorted(set(ends))
    assert (ends[-1] if ends else 0) == len(losses)
    start = 0
    for end, mean in made:
        assert mean == pytest.approx(sum(losses[start:end]) / (end - start), abs=6e-5)
        start = end
    assert len(losses) > CURVE or ends == list(range(1, len(losses) + 1))


@pytest.mark.parametrize(
    ("spec", "setting", "expected"),
    [
        (RopeSpec(base=5e5), TINY, "rope(base=500000)"),
        (RopeSpec(), EXTENDED, "rope, yarn ×2, 4 steps"),
        (RopeSpec(), TINY.replace(extension="ntk", times=8), "rope, ntk ×8"),
        (AlibiSpec(), EXTENDED, "alibi, unscaled ×2, 4 steps"),
        (HYBRID, TINY, "alibi+rope"),
        (LearnedSpec(max_position_embeddings=77), TINY, "learned"),
    ],
)
def test_labels(spec, setting, expected):
    assert Run(spec, setting).label == expected


def test_the_estimate_grows_with_the_work():
    base = Run(RopeSpec())
    for more in ({"steps": 1200}, {"width": 128}, {"train_length": 128}):
        assert Run(RopeSpec(), Setting(**more)).seconds > base.seconds
    assert 2 < base.seconds < 60


def test_the_trainer_of_an_execution_is_that_of_its_config():
    run = MADE["plain"]
    task = run.setting.make_task(run.corpus)
    trainer = Trainer(run.config, new_model(run.config), task)
    losses = [trainer.advance() for _ in range(10)]
    progress, made = finished(Execution(run))
    assert [p.loss for p in progress] == [*losses, losses[-1]]
    assert [x for _, x in made.curve] == [round(x, 4) for x in losses]


@pytest.mark.parametrize(("length", "times", "legal"), [(512, 9, "2 to 8"), (264, 16, "2 to 15"), (512, 16, "2 to 8")])
@pytest.mark.parametrize("extension", ["none", "linear"])
def test_fine_tuning_longer_than_training_allows_is_refused_before_anything_is_trained(length, times, legal, extension):
    setting = Setting(train_length=length, extension=extension, times=times, finetune_steps=10)
    with pytest.raises(SpecError, match=f"times = {times} is not legal .*; legal: {legal}$"):
        Run(RopeSpec(), setting)
    Run(RopeSpec(), setting.replace(finetune_steps=0))
    assert Run(RopeSpec(), setting.replace(times=int(legal.split()[-1]))).finetuning.length <= 4096


def test_slopes_are_one_a_head_of_the_lab():
    (spec,) = parse_schemes("alibi(slopes=1,0.5,0.25,0.1)")
    assert Run(spec).sized.slopes == (1, 0.5, 0.25, 0.1)
    assert parse_schemes(scheme_text(spec)) == (spec,)


@pytest.mark.parametrize("text", ["rope((((", "rope+learned", "rop", "rope*999"])
def test_what_cannot_be_read_is_told_in_the_words_of_the_list(text):
    with pytest.raises(SpecError) as caught:
        parse_schemes(text)
    (problem,) = caught.value.problems
    assert problem.name.startswith("schemes")
    assert problem.field in ("", "schemes")
