"""The Extrapolation lab page: results by link, training in the background that can be left, pictures that tell."""

from __future__ import annotations

import json
import math
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from explorer.charts import curves
from explorer.compute import lab as compute
from explorer.compute import lab_attention as heads
from explorer.jobs import Job, Pool, SessionJobs
from explorer.pictures import lab as pictures
from explorer.pictures import lab_attention as maps
from explorer.pictures import lab_job as words
from explorer.pictures.common import SHARES
from explorer.views import LabView
from posenc_core import SCHEMES, lab, sweep
from posenc_core.analysis import attention_distance, attention_entropy
from posenc_core.benchmark import machine
from posenc_core.lab import BINS, TIMES, Result, Run, Setting
from posenc_core.lab_store import Store
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.tasks import own_text
from posenc_core.train import slope_factor

PATIENCE = 120.0
TINY = {"train_length": "16", "width": "16", "steps": "10", "seeds": "0", "schemes": "rope"}
LONG = TINY | {"steps": "400"}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A store of this test alone, without shipped results."""
    monkeypatch.setenv(compute.FOLDER, str(tmp_path / "lab"))
    monkeypatch.setattr(compute, "SHIPPED", tmp_path / "nothing shipped")
    return tmp_path / "lab"


pytestmark = pytest.mark.usefixtures("own_jobs")


def page(open_app: Any, **query: str) -> AppTest:
    at: AppTest = open_app("lab", query)
    assert not at.exception, at.exception
    return at


def button(at: AppTest, label: str) -> Any:
    return next(b for b in at.button if b.label == label)


def text(at: AppTest) -> str:
    """All that the page says, without escapes."""
    parts = [*at.main.markdown, *at.main.caption, *at.main.info, *at.main.error, *at.main.warning]
    return re.sub(r"\\(.)", r"\1", "\n".join(p.value for p in parts))


def metrics(at: AppTest) -> dict[str, str]:
    return {m.label: m.value for m in at.metric}


def live_of(at: AppTest) -> compute.Live:
    made: compute.Live = at.session_state[compute.LIVE]
    return made


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def settled(at: AppTest) -> AppTest:
    assert live_of(at).job.wait(PATIENCE)
    at.run()
    assert not at.exception, at.exception
    return at


def run_of(query: dict[str, str], scheme: str = "rope", own: str = "") -> Run:
    setting = {k: v for k, v in query.items() if k not in ("schemes", "seeds")}
    parsed = {k: Setting.parse_field(k, v) for k, v in setting.items()}
    return Run(lab.parse_schemes(scheme)[0], Setting(**parsed), int(query["seeds"]), own)


def assert_same(found: Result, expected: Result) -> None:
    """Equal but for where and how fast it was made."""
    for name in ("key", "spec", "setting", "seed", "curve", "loss", "accuracy", "slopes"):
        assert getattr(found, name) == getattr(expected, name), name


# ------------------------------------------------------------------ made-up results


def stretches(levels: list[float | None]) -> tuple[float | None, ...]:
    """Bins whose every training length has one level."""
    return tuple(x for level in levels for x in [level] * BINS)


def result(run: Run, levels: list[float | None], right: list[float | None] | None = None, **more: Any) -> Result:
    values = {
        "key": run.key, "spec": run.sized, "setting": run.setting, "seed": run.seed, "curve": ((5, 4.0), (10, 3.0)),
        "loss": stretches(levels), "accuracy": stretches(right or [0.5] * TIMES), "slopes": (), "seconds": 2.0,
        "machine": machine(),
    }  # fmt: skip
    return Result(**(values | more))


def keep(folder: Path, *results: Result) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for made in results:
        (folder / f"{made.key}.json").write_text(json.dumps(made.to_mapping()))


def asked_of(schemes: str, seeds: tuple[int, ...] = (0,), **setting: Any) -> compute.Asked:
    return compute.asked(lab.parse_schemes(schemes), Setting(**setting), seeds)


FLAT, RISING = [2.0] * TIMES, [1.5 + 0.2 * i for i in range(TIMES)]


# ------------------------------------------------------------------ before anything is measured


@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_results_the_page_says_what_start_does(open_app: Any, scheme: str) -> None:
    at = page(open_app, scheme=scheme, b_scheme="alibi")
    runs, _ = lab.runs(lab.parse_schemes(lab.DEFAULT_SCHEMES), Setting(), (0, 1, 2))
    minutes = sum(r.seconds for r in runs) / 60
    assert f"18 runs of 18 to train, 600 steps at 64 positions each, on one core: about {minutes:.0f} min" in text(at)
    assert not button(at, "Start").disabled
    assert button(at, "Stop").disabled
    assert metrics(at)["runs measured"] == "0 of 18"
    assert 3 <= len(at.metric) <= 5


def test_the_picture_stands_before_the_controls_of_training_and_the_formula_last(open_app: Any, folder: Path) -> None:
    keep(folder, result(run_of(TINY), FLAT))
    at = page(open_app, **TINY)
    kinds = [(x.type, getattr(x, "key", None)) for x in at.main]
    chart = next(i for i, (kind, _) in enumerate(kinds) if kind == "vega_lite_chart")
    assert all(i > chart for i, (_, key) in enumerate(kinds) if key in ("train_length", "steps", "width", "seeds"))
    assert next(i for i, (kind, _) in enumerate(kinds) if kind == "latex") > chart


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_sidebars_scheme_can_be_picked(open_app: Any, scheme: str) -> None:
    at = page(open_app, scheme=scheme, b_scheme="rope", b_base="777")
    options = at.multiselect(key="schemes").options
    assert lab.scheme_text(SCHEMES[scheme]()) in options
    assert "rope(base=777)" in options
    at.multiselect(key="schemes").set_value(["rope(base=777)"]).run()
    assert not at.exception
    assert metrics(at)["runs measured"] == "0 of 3"


def test_a_sidebar_scheme_that_cannot_run_here_is_told(open_app: Any) -> None:
    at = page(open_app, scheme="hybrid", layers="rope*3, none")
    assert "The sidebar's scheme cannot run here: schemes = 'rope+rope+rope+none' is not legal" in text(at)


# ------------------------------------------------------------------ links

BAD = {
    "nonsense": ("schemes=nonsense", "schemes: nonsense.scheme = 'nonsense' is not legal"),
    "unreadable": ("schemes=rope(base=", "schemes = 'rope(base=' is not legal (cannot be read from here on)"),
    "one of two": ("schemes=rope, xpos", "schemes: xpos.scheme = 'xpos' is not legal"),
    "too deep": ("schemes=rope%2Balibi%2Bnone", "schemes = 'rope+alibi+none' is not legal"),
    "none": ("schemes=", "There is nothing to train: pick a scheme that can run."),
    "seed": ("seeds=-1", "seeds = -1 is not legal"),
    "seeds": ("seeds=1,2,3,4,5,6,7,8,9", "at most 8 whole numbers"),
    "huge seed": ("seeds=99999999999999999999", "from 0 to 2,147,483,647"),
    "huge": ("steps=1e12&width=1e12&train_length=1e12", "train_length = 1000000000000 is not legal"),
    "no choice": ("task=sorting&metric=speed", "metric = 'speed' is not legal; legal: one of auto, loss, accuracy"),
    "unread": ("times=4", "times = 4 is not legal (extension is off)"),
    "back": ("task=token_back&back=40&train_length=32", "back = 40 is not legal; legal: a whole number from 1 to 31"),
    "map": ("schemes=rope&map_scheme=9", "map_scheme = 9 is not legal (with the other values)"),
    "table": ("schemes=learned&extension=linear&finetune_steps=9", "learned has no rows past the training length"),
    "many": ("schemes=" + ",".join(f"rope(base={n})" for n in range(10, 28)), "at most 16 schemes"),
    "long": ("schemes=" + "x" * 500, "text of at most 400 characters"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_link_becomes_a_sentence(open_app: Any, name: str) -> None:
    query, said = BAD[name]
    at = open_app("lab", query)
    assert not at.exception, at.exception
    assert said in text(at)


def test_typing_more_than_a_link_holds_is_told(open_app: Any) -> None:
    at = page(open_app)
    many = [f"rope(base={10_000_000 + n}, rotary_fraction=0.5)" for n in range(12)]
    at.multiselect(key="schemes").set_value(many).run()
    assert not at.exception
    assert "the link leaves out the last" in text(at)
    assert metrics(at)["runs measured"] == "0 of 36"


def test_typed_seeds_that_are_none_are_told_and_the_default_ones_used(open_app: Any) -> None:
    at = page(open_app, schemes="rope")
    at.text_input(key="seeds").set_value("one, two").run()
    assert not at.exception
    assert "seeds = 'one, two' is not legal; legal: at most 8 whole numbers" in text(at)
    assert metrics(at)["runs measured"] == "0 of 3"


@given(
    st.lists(st.sampled_from(["rope", "alibi+rope", "rope(base=77)", "none", "x", "rope(", "", "hybrid", "+", ",,"])),
    st.text(max_size=20),
)
def test_any_schemes_and_seeds_give_specs_and_sentences(items: list[str], seeds: str) -> None:
    specs, problems = compute.schemes_of(items)
    assert len(set(specs)) == len(specs) <= lab.MOST_SCHEMES
    legal = [s for s in items if s in ("rope", "alibi+rope", "rope(base=77)", "none", "hybrid")]
    assert {lab.scheme_text(s) for s in specs} == {"alibi+rope" if s == "hybrid" else s for s in legal}
    assert bool(problems) == bool([s for s in items if s not in legal])
    numbers, wrong = compute.seeds_of(seeds)
    assert numbers
    assert all(0 <= n <= lab.MAX_SEED for n in numbers)
    assert not wrong or numbers == (0, 1, 2)


# ------------------------------------------------------------------ results


def test_a_link_shows_what_is_measured_at_once(open_app: Any, folder: Path) -> None:
    asked = asked_of("alibi, rope, learned", (0, 1))
    rows: dict[str, list[float | None]] = {
        "alibi": FLAT, "rope": list(RISING), "learned": [2.5, *[None] * (TIMES - 1)],
    }  # fmt: skip
    for run in asked.runs:
        loss = [x if x is None else x + 0.1 * run.seed for x in rows[run.label]]
        keep(folder, result(run, loss))
    at = page(open_app, schemes="alibi, rope, learned", seeds="0,1")
    assert metrics(at) == {
        "runs measured": "6 of 6", "still to train": "nothing", "flattest at 8 times": "alibi 0.00",
        "best at 16 times": "alibi 2.050",
    }  # fmt: skip
    assert button(at, "Start").disabled
    said = text(at)
    assert "Within 0.1 nats a byte of the loss at the training length, up to 8 times it: alibi 2.050 (0.00)." in said
    assert "Higher by more, at worst: rope 1.550 (+1.40)." in said
    assert "End at their table: learned (no rows past 64)." in said
    table = at.dataframe[0].value.set_index("scheme")
    assert list(table.loc["rope", ["1×", "2×", "4×", "8×", "16×"]]) == [
        f"{1.55 + 0.2 * (n - 1):.3f} ± 0.050" for n in (1, 2, 4, 8, 16)
    ]
    assert list(table.loc["learned", ["1×", "2×", "16×"]]) == ["2.550 ± 0.050", *["no rows past 64"] * 2]
    assert table.loc["alibi", "seeds"] == "0, 1"
    assert "made" not in table  # all of them here
    assert "No weights of these runs are kept on this server" in said
    assert not [w for w in at.selectbox if w.key == "map_scheme"]
    assert "6 runs" in said
    assert "12 s of training in all" in said


def test_accuracy_is_natural_for_tasks_other_than_text(open_app: Any, folder: Path) -> None:
    asked = asked_of("rope", task="recall")
    keep(folder, result(asked.runs[0], FLAT, [0.9, 0.9, 0.8, *[0.7] * (TIMES - 3)]))
    at = page(open_app, schemes="rope", seeds="0", task="recall")
    assert "Lower by more, at worst: rope 90.0% (−20 points)." in text(at)
    assert metrics(at)["best at 16 times"] == metrics(at)["best at 8 times"] == "rope 70.0%"
    assert "flattest at 8 times" not in metrics(at)  # who only guesses is flat
    at = page(open_app, schemes="rope", seeds="0", task="recall", metric="loss")
    assert "Within 0.1 nats of the loss at the training length, up to 8 times it: rope 2.000 (0.00)." in text(at)


LEVELS = st.lists(st.floats(0.0, 6.0), min_size=BINS * TIMES, max_size=BINS * TIMES)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40)
@given(st.lists(LEVELS, min_size=2, max_size=6), st.sampled_from(["loss", "accuracy"]))
def test_the_sentence_sorts_the_schemes_as_their_numbers_do(bins: list[list[float]], metric: Any) -> None:
    """Against the bins themselves, by numpy: three schemes, one or two seeds each."""
    names = ("rope", "alibi", "none")[: len(bins) // 2]
    asked = asked_of(", ".join(names), (0, 1))
    values = {run.key: np.round(np.array(b) / (1 if metric == "loss" else 6), 4)
              for run, b in zip(asked.runs, bins, strict=False)}  # fmt: skip
    made = {
        run.key: result(run, FLAT, **{metric: tuple(values[run.key].tolist())})
        for run in asked.runs if run.key in values
    }  # fmt: skip
    shown = pictures.sides(asked, made)
    said = pictures.seen(shown, metric)
    near, _, off = said.partition("by more, at worst:")
    for side in shown:
        means = np.mean([values[r.key] for r in side.results], axis=0).reshape(TIMES, 2, BINS // 2)[:, 1].mean(-1)
        change = (means[[1, 3, 7]] - means[0]).max() if metric == "loss" else (means[0] - means[[1, 3, 7]]).max()
        limit = 0.1 if metric == "loss" else 0.05
        if abs(change - limit) < 1e-6:
            continue
        part = near if change <= limit else off
        level = f"{means[0]:.3f}" if metric == "loss" else f"{means[0]:.1%}"
        found = re.search(rf"(?<!\+)\b{side.label} ([\d.]+%?) \(([+−]?[\d.]+)", part)
        assert found, (side.label, said)
        assert float(found[1].rstrip("%")) == pytest.approx(float(level.rstrip("%")), abs=0.11)
        told = float(found[2].replace("−", "-"))
        assert told == pytest.approx(
            change if metric == "loss" else -100 * change, abs=0.011 if metric == "loss" else 1
        )


def test_the_line_is_the_mean_and_the_band_the_seeds_ends() -> None:
    asked = asked_of("rope", (0, 1, 2))
    rng = np.random.default_rng(0)
    made = {r.key: result(r, FLAT, loss=tuple(np.round(rng.random(BINS * TIMES), 4).tolist())) for r in asked.runs}
    [side] = pictures.sides(asked, made)
    data = pictures.by_position([side], "loss", Setting()).data
    line, band = (data[data.part == part] for part in ("line", "band"))
    bins = np.array([made[r.key].loss for r in asked.runs])
    near = bins[:, : 2 * BINS]
    far = np.stack([bins[:, i * BINS : (i + 1) * BINS].mean(1) for i in range(2, TIMES)], axis=1)
    values = np.concatenate([near, far], axis=1)
    x = [4 + 8 * i for i in range(16)] + [160 + 64 * i for i in range(14)]  # centres of the bins, of the lengths
    assert line.x.tolist() == x == band.x.tolist()
    np.testing.assert_allclose(line.y, values.mean(0))
    np.testing.assert_allclose(band.low, values.min(0))
    np.testing.assert_allclose(band.high, values.max(0))
    assert data[data.part == "upright"].x.tolist() == [64.0]


def test_only_points_tell_and_what_the_guide_is_called_stands_above_every_accuracy() -> None:
    asked = asked_of("rope", (0, 1), task="recall")
    shown = pictures.sides(asked, {r.key: result(r, FLAT, [1.0] * TIMES) for r in asked.runs})
    lines = pictures.by_position(shown, "accuracy", asked.runs[0].setting)
    chart = curves.curves(lines.data, x_title="x", y_title="y", bands=True, y_domain=SHARES, **pictures.style(shown))
    tooltips = {layer["mark"]["type"]: layer["encoding"].get("tooltip") for layer in chart.to_dict()["layer"]}
    assert tooltips["area"] == tooltips["line"] == {"value": None}  # Streamlit's own would call a band's low end y
    assert isinstance(tooltips["point"], list)
    above = (SHARES[1] - 1) / (SHARES[1] - SHARES[0])
    assert above * (420 - 60) >= 3 + 11  # px of the label's offset and letters; 60: the axis below the plot


def test_the_csv_has_a_line_a_run() -> None:
    asked = asked_of("rope", (0, 1))
    made = {r.key: result(r, list(RISING)) for r in asked.runs}
    header, *rows = pictures.runs_csv(pictures.sides(asked, made)).splitlines()
    assert len(rows) == 2
    row = dict(zip(header.split(","), rows[1].split(","), strict=True))
    assert row["seed"] == "1"
    assert row["key"] == asked.runs[1].key
    assert [row[f"loss_at_{n}"] for n in (1, 2, 4, 8, 16)] == ["1.5", "1.7", "2.1", "2.9", "4.5"]
    made_with = {k: row[k] for k in ("scheme", "task", "train_length", "steps", "width", "extension", "curriculum")}
    assert made_with == {"scheme": "rope", "task": "text", "train_length": "64", "steps": "600", "width": "64",
                         "extension": "off", "curriculum": "fixed"}  # fmt: skip
    assert row["text"] == asked.runs[0].corpus.digest


def test_the_csv_tells_an_extension_and_no_more_digits_than_are_kept() -> None:
    asked = asked_of("rope", extension="yarn", times=4, finetune_steps=50, task="token_back", back=4)
    made = {r.key: result(r, FLAT, loss=tuple([8.0, 8.07555, *[8.03] * (BINS * TIMES - 2)])) for r in asked.runs}
    header, *rows = pictures.runs_csv(pictures.sides(asked, made)).splitlines()
    named = [dict(zip(header.split(","), row.split(","), strict=True)) for row in rows]
    told = [[row[k] for k in ("extension", "times", "finetune_steps", "back")] for row in named]
    assert told == [["off", "", "", "4"], ["yarn", "4.0", "50.0", "4"]]
    for row in named:
        assert all(len(row[f"loss_at_{n}"]) <= 8 for n in (1, 2, 4, 8, 16))


def test_who_made_a_line_is_told_where_lines_differ_in_it() -> None:
    asked = asked_of("rope, alibi")
    shown = pictures.sides(asked, {r.key: result(r, FLAT) for r in asked.runs})
    table = pictures.table(shown, "loss", frozenset([asked.runs[0].key]))
    assert table["made"].tolist() == ["recorded", "here"]
    assert "made" not in pictures.table(shown, "loss", frozenset(r.key for r in asked.runs))


def test_sixteen_schemes_have_names_and_only_the_ninth_shares_a_colour() -> None:
    asked = asked_of(", ".join(f"rope(base={n})" for n in range(100, 116)))
    shown = pictures.sides(asked, {r.key: result(r, FLAT) for r in asked.runs})
    assert len({s.colour for s in shown[:8]}) == 8
    assert not any(s.dashed for s in shown[:8])
    assert all(s.dashed for s in shown[8:])


def test_a_variant_does_not_take_the_colour_of_another_scheme() -> None:
    style, alone = (words.styles(asked_of(text).runs) for text in ("rope, rope(base=500), alibi, none", "alibi"))
    assert style["alibi"] == alone["alibi"]
    assert len({colour for colour, _ in style.values()}) == 4


def test_a_scheme_keeps_its_colour_and_its_extension_is_dashed() -> None:
    asked = asked_of("rope, alibi", extension="linear", times=2, finetune_steps=10)
    style = words.styles(asked.runs)
    assert list(style) == ["rope", "rope, linear ×2, 10 steps", "alibi", "alibi, unscaled ×2, 10 steps"]
    assert style["rope"][0] == style["rope, linear ×2, 10 steps"][0] != style["alibi"][0]
    assert words.dashed(asked.runs) == ("rope, linear ×2, 10 steps", "alibi, unscaled ×2, 10 steps")
    shown = pictures.sides(asked, {asked.runs[3].key: result(asked.runs[3], FLAT)})
    assert pictures.series(shown) == (("alibi, unscaled ×2, 10 steps", style["alibi"][0]),)


def test_the_sidebars_scheme_is_a_try_unless_it_is_there(open_app: Any) -> None:
    at = page(open_app, scheme="integer", steps="50", schemes="rope, alibi")
    link = next(x.proto for x in at.get("page_link") if "integer from the sidebar" in x.proto.label)
    assert "schemes=rope%2C+alibi%2C+integer" in link.query_string
    assert "steps=50" in link.query_string
    at = page(open_app, scheme="rope", schemes="rope, alibi")
    assert not any("from the sidebar" in x.proto.label for x in at.get("page_link"))


def test_a_text_too_short_for_many_lengths_is_told() -> None:
    asked = asked_of("rope")
    [run] = asked.runs
    shown = pictures.sides(asked, {run.key: result(run, [2.0, 2.3, 2.1])})
    assert pictures.seen(shown, "loss").startswith(
        "No scheme stays within 0.1 nats a byte of the loss at the training length, up to 2 "
    )
    assert pictures.table(shown, "loss", frozenset()).loc[0, "8×"] == "the text ends before"
    shown = pictures.sides(asked, {run.key: result(run, [2.0])})
    assert pictures.seen(shown, "loss") == "The held-out text ends after 64 positions: too short to tell."


# ------------------------------------------------------------------ training


def test_a_tiny_training_through_the_page_gives_what_the_library_gives(
    open_app: Any, address: Any, folder: Path
) -> None:
    at = page(open_app, **TINY)
    button(at, "Start").click().run()
    settled(at)
    assert metrics(at)["runs measured"] == "1 of 1"
    assert {c.proto.alt for c in at.get("vega_lite_chart")} >= {"Held-out loss by position, past training"}
    assert len(at.get("bidi_component")) >= 4  # the maps of a model whose weights are kept
    run = run_of(TINY)
    found = Store(folder, None).get(run.key)
    assert found is not None
    assert_same(found, lab.perform([run], torch.get_num_threads())[0])
    assert address(at) == {"scheme": "rope"} | TINY
    # the same link shows it to somebody else, at once
    other = page(open_app, **TINY)
    assert metrics(other)["runs measured"] == "1 of 1"
    assert other.dataframe[0].value.equals(at.dataframe[0].value)


def test_stop_keeps_the_half_made_run_and_start_goes_on_to_the_same_result(open_app: Any, folder: Path) -> None:
    at = page(open_app, **LONG)
    button(at, "Start").click().run()
    live = live_of(at)
    until(lambda: len(live.losses) > 4)
    at.run()
    assert not at.exception
    assert "Training loss of the runs in progress" in [c.proto.alt for c in at.get("vega_lite_chart")]
    assert "Training; the first result appears here." in text(at)
    assert "Start trains it" not in text(at)
    assert "Attention before and past" not in text(at)
    assert metrics(at)["still to train"] == "1 run"  # the bar tells how long
    assert "on one core. Results are kept" in text(at)
    assert button(at, "Start").disabled
    button(at, "Stop").click().run()
    settled(at)
    assert live.job.state == "cancelled"
    steps = len(live.losses)
    assert 4 < steps < 400
    assert f"Rope, seed 0, was stopped at step {steps} of 400: Start goes on from there." in text(at)
    assert f"Stopped at rope, seed 0: training, step {steps} of 400." in text(at)
    button(at, "Start").click().run()
    settled(at)
    assert live_of(at).losses[:steps] == live.losses[:steps]
    run = run_of(LONG)
    found = Store(folder, None).get(run.key)
    assert found is not None
    assert_same(found, lab.perform([run], torch.get_num_threads())[0])
    assert Store(folder, None).state(run.key) is None


def test_stop_says_so_at_once_however_long_the_step(open_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gate: list[bool] = []
    monkeypatch.setattr(compute, "make", lambda live, job, kept, todo: until(lambda: bool(gate)))
    at = page(open_app, **TINY)
    button(at, "Start").click().run()
    until(lambda: live_of(at).job.state == "running")
    button(at, "Stop").click().run()
    assert [p.proto.text for p in at.get("progress")] == ["Stopping…"]
    assert button(at, "Stop").disabled
    gate.append(True)
    settled(at)
    assert live_of(at).job.state == "cancelled"


def test_the_time_left_is_told_at_the_measured_pace_or_not_at_all() -> None:
    run = run_of(LONG)
    live = compute.Live((run,))

    class Slow(Job[Result]):
        seconds = 4.0

        @property
        def seconds_left(self) -> float | None:
            done, total = self.progress
            return self.seconds * (total - done) / done

    live.job = Slow(lambda job: None)
    live.job.state = "running"
    live.job.report(0.2, 20.0)
    assert "left" not in words.progress(live)[0]
    live.job.report(1.0, 20.0)  # four times as slow as estimated
    assert words.progress(live)[0].endswith("; about 76 s left")


def test_what_the_link_says_of_maps_waits_until_there_are_some(
    open_app: Any, address: Any, trained: Callable[..., Run]
) -> None:
    query = TINY | {"map_times": "8", "layer": "0", "head": "3"}
    at = page(open_app, **query)
    assert not at.warning
    assert "Attention before and past" not in text(at)
    assert address(at) == {"scheme": "rope"} | query
    trained()
    at.run()
    assert "rope, layer 0 head 3: at the training length" in text(at)
    assert address(at) == {"scheme": "rope"} | query


def test_a_reader_who_closes_the_tab_finds_it_where_it_was(
    open_app: Any, own_jobs: SessionJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = LONG | {"schemes": "none, rope", "steps": "300"}
    at = page(open_app, **query)
    button(at, "Start").click().run()
    live = live_of(at)
    until(lambda: len(live.job.results) == 1 and live.now is not None and live.now.label == "rope")
    until(lambda: len(live.losses) > 2)
    own_jobs.release()  # as Streamlit does when the tab is closed
    assert live.job.wait(PATIENCE)
    monkeypatch.setattr(compute, "session_jobs", lambda: SessionJobs(Pool(1)))
    again = page(open_app, **query)
    assert metrics(again)["runs measured"] == "1 of 2"
    assert f"Rope, seed 0, was stopped at step {len(live.losses)} of 300" in text(again)
    assert "none" in again.dataframe[0].value["scheme"].tolist()


def test_what_another_reader_made_meanwhile_is_not_made_again(open_app: Any, folder: Path) -> None:
    at = page(open_app, **LONG)
    made_up = result(run_of(LONG), FLAT)
    keep(folder, made_up)
    button(at, "Start").click().run()
    settled(at)
    assert live_of(at).job.results == [made_up]
    assert live_of(at).losses == []


def test_the_place_in_the_queue_is_told(open_app: Any, own_jobs: SessionJobs) -> None:
    gate: list[bool] = []

    def wait(job: Job[int]) -> None:
        until(lambda: bool(gate) or job.cancelled())

    first, second = (own_jobs.start(name, wait) for name in ("a", "b"))
    at = page(open_app, **TINY)
    button(at, "Start").click().run()
    at.run()
    assert [p.proto.text for p in at.get("progress")] == [r"Waiting\: 2 jobs before yours."]
    assert "Waiting for other jobs; the first result appears here." in text(at)
    assert "Nothing of this setting is measured yet" not in text(at)
    assert not at.get("vega_lite_chart")
    gate.append(True)
    assert first.wait(PATIENCE)
    assert second.wait(PATIENCE)
    settled(at)
    assert metrics(at)["runs measured"] == "1 of 1"


def test_an_extension_trains_its_base_once_and_shows_both(open_app: Any, folder: Path) -> None:
    query = TINY | {"extension": "ntk", "times": "2", "finetune_steps": "10", "schemes": "rope, learned"}
    at = page(open_app, **query)
    assert "learned has no rows past the training length" in text(at)
    button(at, "Start").click().run()
    settled(at)
    assert at.dataframe[0].value["scheme"].tolist() == ["rope", "rope, ntk ×2, 10 steps"]
    run = run_of({k: v for k, v in query.items() if k != "schemes"})
    expected = lab.perform([run.base, run], torch.get_num_threads())
    for each in expected:
        found = Store(folder, None).get(each.key)
        assert found is not None
        assert_same(found, each)


def test_a_base_without_weights_is_trained_for_its_extension_without_becoming_another_result(
    open_app: Any, folder: Path
) -> None:
    query = TINY | {"extension": "linear", "times": "2"}
    run = run_of({k: v for k, v in query.items() if k != "schemes"})
    keep(folder, result(run.base, FLAT))
    at = page(open_app, **query)
    assert "2 runs of 2 to train" in text(at)
    button(at, "Start").click().run()
    settled(at)
    expected = lab.perform([run], torch.get_num_threads())[0]
    found = Store(folder, None).get(run.key)
    assert found is not None
    assert_same(found, expected)


def test_a_job_that_fails_is_told_and_a_state_that_cannot_be_gone_on_from_is_forgotten(
    open_app: Any, folder: Path
) -> None:
    kept, run = Store(folder, None), run_of(TINY)
    kept.save_state(run.key, {"losses": [1.0], "total": 10, "phase": "training", "seconds": 1.0, "trainer": {}})
    at = page(open_app, **TINY)
    assert "was stopped at step 1 of 10" in text(at)
    button(at, "Start").click().run()
    settled(at)
    assert "Failed: KeyError" in text(at)
    assert kept.state(run.key) is None
    button(at, "Start").click().run()
    settled(at)
    assert metrics(at)["runs measured"] == "1 of 1"


def test_a_cancelled_job_ends_with_the_step_it_is_at(folder: Path) -> None:
    run = run_of(LONG)
    live, todo = compute.Live((run,)), compute.Work((run,), (), run.seconds, frozenset())
    counts: list[int] = []

    class Cancelling(Job[Result]):
        def report(self, done: float, total: float) -> None:
            super().report(done, total)
            counts.append(len(live.losses))
            if len(live.losses) == 7:
                self.cancel()

    job = Cancelling(lambda job: compute.make(live, job, Store(folder, None), todo))
    Pool(1).submit(job)
    assert job.wait(PATIENCE)
    assert job.state == "cancelled"
    assert len(live.losses) <= 8
    state = Store(folder, None).state(run.key)
    assert state is not None
    assert state["losses"] == live.losses
    assert counts == sorted(counts)


def test_progress_is_told_in_the_estimates_seconds_and_ends_at_their_sum(folder: Path) -> None:
    runs, _ = lab.runs(lab.parse_schemes("rope, alibi"), run_of(TINY).setting, (0,))
    todo = compute.work(compute.Asked(tuple(runs), ()), {})
    told: list[tuple[float, float]] = []

    class Told(Job[Result]):
        def report(self, done: float, total: float) -> None:
            super().report(done, total)
            told.append((done, total))

    job = Told(lambda job: compute.make(compute.Live(todo.runs), job, Store(folder, None), todo))
    Pool(1).submit(job)
    assert job.wait(PATIENCE)
    assert job.state == "done"
    assert told == sorted(told)
    assert told[0] == (0.0, todo.seconds)
    assert told[-1][0] == pytest.approx(todo.seconds) == pytest.approx(sum(r.seconds for r in runs))


def test_a_run_in_progress_is_kept_now_and_then(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "SAVE_SECONDS", 0.0)
    kept, run = Store(folder, None), run_of(LONG)
    todo = compute.Work((run,), (), run.seconds, frozenset())
    seen: list[int] = []

    class Watched(Store):
        def save_state(self, key: str, state: dict[str, Any]) -> None:
            super().save_state(key, state)
            seen.append(len(state["losses"]))

    job: Job[Result] = Job(lambda job: compute.make(compute.Live((run,)), job, Watched(folder, None), todo))
    Pool(1).submit(job)
    until(lambda: len(seen) >= 3)
    state = kept.state(run.key)
    job.cancel()
    assert job.wait(PATIENCE)
    assert seen[:3] == [1, 2, 3]
    assert state is not None


def test_a_full_disk_costs_what_it_cannot_hold_not_the_training(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "SAVE_SECONDS", 0.0)

    class Full(Store):
        def put(self, result: Result, model: object) -> None:
            raise OSError(28, "No space left on device")

        def save_state(self, key: str, state: dict[str, Any]) -> None:
            raise OSError(28, "No space left on device")

    run = run_of(TINY)
    todo = compute.Work((run,), (), run.seconds, frozenset())
    job: Job[Result] = Job(lambda job: compute.make(compute.Live((run,)), job, Full(folder, None), todo))
    Pool(1).submit(job)
    assert job.wait(PATIENCE)
    assert job.state == "done"
    (made,) = job.results
    assert (made.loss, made.curve) == (lab.perform([run])[0].loss, lab.perform([run])[0].curve)


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"\xff\xfe\x00text", "The file is not UTF-8 text."), (b"", "The file is empty."), (b"a\r\nb", "")],
)
def test_a_file_that_is_no_text_is_told(folder: Path, open_app: Any, data: bytes, said: str) -> None:
    at = open_app("lab")
    at.file_uploader(key="_lab_file").set_value(("text.txt", data, "text/plain")).run()
    assert not at.exception
    if said:
        assert f"{said} The shipped text is used." in text(at)


# ------------------------------------------------------------------ limits


def test_more_work_than_the_limit_is_not_started_and_the_command_does_it(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(compute.MINUTES, "0.5")
    query = {"schemes": "rope, alibi+rope, rope(base=500000)", "seeds": "0,3", "task": "token_back", "back": "4",
             "extension": "linear", "times": "4", "finetune_steps": "20", "train_length": "32"}  # fmt: skip
    at = page(open_app, **query)
    assert button(at, "Start").disabled
    assert "That is more than the 30 s that one start may take here" in text(at)
    program, *words_ = shlex.split(at.code[0].value)[1:]
    assert [program, words_[0]] == ["-m", "posenc_core.lab"]
    wanted = sweep._wanted(sweep._parser().parse_args(words_[1:]))
    setting = Setting(task="token_back", back=4, extension="linear", times=4, finetune_steps=20, train_length=32)
    runs, _ = lab.runs(lab.parse_schemes(query["schemes"]), setting, (0, 3))
    assert {r.key for r in wanted} == {r.key for r in runs}
    seconds = sum(r.seconds for r in runs)
    assert f"about {words.time_text(seconds)}." in text(at)


@pytest.mark.parametrize("value", ["", "0", "-3", "nan", "inf", "soon"])
def test_a_limit_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(compute.MINUTES, value)
    with pytest.raises(ValueError, match=re.escape(f"{compute.MINUTES} = {value!r} is not legal")):
        compute.most_seconds()
    monkeypatch.setenv(compute.MINUTES, "2")
    assert compute.most_seconds() == 120


def test_a_folder_that_cannot_be_written_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path
) -> None:
    assert compute.store().folder == folder
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv(compute.FOLDER, str(tmp_path / "file" / "lab"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert compute.store().folder == tmp_path / "cache" / "posenc-explorer" / "lab"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    last = compute.store().folder
    assert last is not None
    assert last.is_dir()
    assert "posenc-lab-" in last.name


# ------------------------------------------------------------------ the reader's own text

OWN = "The quick brown fox jumps over the lazy dog. " * 40


def test_training_on_ones_own_text_is_kept_by_its_hash_and_not_in_the_link(
    open_app: Any, address: Any, folder: Path
) -> None:
    at = page(open_app, **TINY)
    at.text_area(key="_lab_typed").set_value("short").run()
    assert "text = 'short' is not legal (it has 5); legal: at least 330 bytes" in text(at)
    assert "There is nothing to train: your text cannot be used. Give a longer one, or empty its box." in text(at)
    assert "pick a scheme that can run" not in text(at)
    assert not at.exception
    assert "the same link shows them again" in text(page(open_app, **TINY))
    at.text_area(key="_lab_typed").set_value(OWN).run()
    assert "the same link with the same text shows them again" in text(at)
    button(at, "Start").click().run()
    settled(at)
    assert address(at) == {"scheme": "rope"} | TINY
    run = run_of(TINY, own=OWN)
    assert run.key != run_of(TINY).key
    found = Store(folder, None).get(run.key)
    assert found is not None
    assert_same(found, lab.perform([run], torch.get_num_threads())[0])
    assert f"Text: SHA-256 {own_text(OWN).digest[:12]}… (yours)" in text(at)
    assert not any(OWN[:40].encode() in path.read_bytes() for path in folder.iterdir())
    at.text_area(key="_lab_typed").set_value("").run()
    assert metrics(at)["runs measured"] == "0 of 1"


def test_a_text_that_is_too_large_is_refused(open_app: Any) -> None:
    at = page(open_app, **TINY)
    at.text_area(key="_lab_typed").set_value("€" * 400_000).run()
    assert "The text has 1,200,000 bytes; legal: at most 1,048,576. The shipped text is used." in text(at)
    assert not at.exception


def test_a_text_file_is_read(open_app: Any, folder: Path) -> None:
    at = page(open_app, **TINY)
    at.file_uploader(key="_lab_file").set_value(("mine.txt", OWN.encode(), "text/plain")).run()
    assert not at.exception
    keep(folder, result(run_of(TINY, own=OWN), FLAT))
    at.run()
    assert metrics(at)["runs measured"] == "1 of 1"


# ------------------------------------------------------------------ options


def test_options_that_are_set_can_be_seen_from_outside(open_app: Any) -> None:
    assert "Options set" not in text(page(open_app))
    at = page(open_app, curriculum="progressive", position_gap="4", extension="yarn", times="8")
    assert "Options set: curriculum = progressive, position gap = 4, extension = yarn, times = 8." in text(at)


def test_every_option_of_articles_has_its_line(open_app: Any) -> None:
    assert set(words.OPTIONS) == {p.name for p in Setting.params() if p.advanced}
    at = page(open_app, slope_training="dynamic", extension="linear")
    for line in words.OPTIONS.values():
        assert line in [m.value for m in at.main.markdown]


@given(st.integers(10, 20_000), st.floats(0.0, 2.0))
def test_the_last_negative_step_is_where_the_formula_says(steps: int, alpha: float) -> None:
    setting = Setting(steps=steps, slope_training="dynamic", alpha=alpha)
    last = words.last_negative(setting)
    if alpha > 0:  # 1 + α·log(t/T) < 0 while t < T·e^(-1/α)
        edge = steps * math.exp(-1 / alpha)
        assert last == max(0, math.ceil(edge) - 1) or abs(edge - round(edge)) < 1e-6
    else:
        assert last == 0
    said = words.seen_factor(setting)
    assert (f"negative up to step {last:,} of {steps:,}" in said) == (last > 0)


def test_the_factor_is_drawn_with_zero_marked(open_app: Any) -> None:
    at = page(open_app, slope_training="dynamic", alpha="0.5")
    assert "Factor of dynamic slopes over training" in [c.proto.alt for c in at.get("vega_lite_chart")]
    data = words.factor_lines(Setting(slope_training="dynamic")).data
    assert data[data.part == "level"].y.tolist() == [0.0]
    line = data[data.part == "line"]
    assert line.x.iloc[[0, -1]].tolist() == [1.0, 600.0]
    for x, y in zip(line.x, line.y, strict=True):
        assert y == pytest.approx(slope_factor(int(x), 600, 0.5)) == pytest.approx(1 + 0.5 * math.log(x / 600))


def test_learned_slopes_stand_beside_the_recipes() -> None:
    asked = asked_of("alibi, alibi+rope, rope", slope_training="learned")
    reached = {"alibi": (0.5, 0.1, 0.03125, 0.002), "alibi+rope": (0.25, 0.0625, 0.015625, 0.00390625), "rope": ()}
    made = {r.key: result(r, FLAT, slopes=reached[r.label]) for r in asked.runs}
    lines = pictures.slope_lines(pictures.sides(asked, made))
    assert lines is not None
    drawn = {name: part.y.tolist() for name, part in lines.data.groupby("series")}
    assert drawn == {
        "paper's recipe": [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], "alibi": list(reached["alibi"]),
        "alibi+rope": list(reached["alibi+rope"]),
    }  # fmt: skip
    said = pictures.seen_slopes(pictures.sides(asked, made))
    assert said == (
        "Learned slopes of alibi: 0.51 to 2.00 times the recipe's; alibi+rope: 1.00 to 1.00 times the recipe's."
    )
    assert pictures.recipe(AlibiSpec(n_heads=4)) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    plain = asked_of("alibi")
    axes = pictures.slope_axes(pictures.sides(asked, made))
    assert axes["x_ticks"] == (0, 1, 2, 3)
    assert axes["x_domain"][0] < 0
    assert axes["x_domain"][1] > 3
    assert axes["y_domain"][0] < 0
    assert axes["y_domain"][1] > 0.5
    assert pictures.slope_lines(pictures.sides(plain, {r.key: result(r, FLAT) for r in plain.runs})) is None


# ------------------------------------------------------------------ attention


@pytest.fixture
def trained(folder: Path) -> Callable[..., Run]:
    """Train a tiny run and keep its weights."""

    def make(scheme: str = "rope", **setting: Any) -> Run:
        run = Run(lab.parse_schemes(scheme)[0], Setting(train_length=16, width=16, steps=10, **setting))
        execution = lab.Execution(run)
        for _ in execution:
            pass
        assert execution.result is not None
        Store(folder, None).put(execution.result, execution.model)
        return run

    return make


@pytest.mark.parametrize("task", ["text", "recall"])
def test_heads_are_told_by_the_models_own_weights(trained: Any, task: str) -> None:
    run = trained(task=task)
    model = Store(compute.store().folder, None).model(run)
    assert model is not None
    tokens = run.setting.make_task(run.corpus).held_out(4, 64, 16).tokens[:4]
    per_row = [model.trace(row[None], torch.arange(64)).weights for row in tokens]
    entropy = torch.stack([torch.stack([attention_entropy(w[0]) for w in row]) for row in per_row]).double().mean(0)
    looked = [torch.stack([attention_distance(w[0], torch.arange(64)) for w in row]) for row in per_row]
    distance = torch.stack(looked).double().mean(0)
    table = maps.drift_table(run, 4)
    np.testing.assert_allclose(
        table["entropy at 4× (nats)"], entropy[..., -8:].mean(-1).flatten().numpy().round(2), atol=0.011
    )
    np.testing.assert_allclose(
        table["distance at 4× (positions)"], distance[..., -8:].mean(-1).flatten().numpy().round(2), atol=0.011
    )
    large = maps.large_maps(run, 4, 1, 2)[1].values
    expected = per_row[0][1][0, 2].double().numpy()
    np.testing.assert_allclose(np.nan_to_num(large), np.tril(expected), atol=1e-6)
    assert np.isnan(large[np.triu_indices(64, 1)]).all()
    said = maps.seen(run, 4, 1, 2)
    tokens_, back = (float(x) for x in re.findall(r"at 4 times over ([\d.]+) and ([\d.]+) back", said)[0])
    assert tokens_ == pytest.approx(math.exp(entropy[1, 2, -8:].mean()), abs=0.06)
    assert back == pytest.approx(distance[1, 2, -8:].mean().item(), abs=0.06)
    short_map, long_map = maps.large_maps(run, 4, 0, 0)
    assert {(g.axis, g.value) for g in long_map.guides} == {("x", 16), ("y", 16)}
    assert short_map.guides == ()
    assert (short_map.rows, long_map.rows) == (16, 64)


def test_before_and_past_have_one_colour_scale_a_head(trained: Any) -> None:
    run = trained()
    short, long = maps.small_maps(run, 4)
    assert [m.title for m in short] == [f"layer {i} head {j}" for i in (0, 1) for j in range(4)]
    assert [m.title for m in short] == [m.title for m in long]
    for before, past in [*zip(short, long, strict=True), maps.large_maps(run, 4, 1, 3)]:
        assert before.domain == past.domain
        tops = [float(np.quantile(m.values[np.isfinite(m.values)], 0.99)) for m in (before, past)]
        assert before.domain == (0.0, pytest.approx(max(tops)))


def test_a_table_has_no_attention_past_its_rows(trained: Any) -> None:
    run = trained("learned")
    assert "past it the table has no rows" in maps.seen(run, 2, 0, 0)
    values = maps.large_maps(run, 2, 0, 0)[1].values
    assert np.isfinite(values[np.tril_indices(16)]).all()
    assert np.isnan(values[16:]).all()
    assert "past the table's 16 rows" in maps.large_maps(run, 2, 0, 0)[1].undefined_label


def test_maps_stay_small_enough_for_the_browser() -> None:
    for trained_length in (16, 64, 128, 256, 512):
        far = maps.lengths(trained_length, LabView.param("map_times").choices)
        assert far
        assert all((int(n) * trained_length) ** 2 <= 2**20 for n in far)
    assert maps.lengths(512, ("2", "4", "8", "16")) == ["2"]


def test_tasks_are_glossed_and_the_link_keeps_their_names(open_app: Any, address: Any) -> None:
    assert list(words.TASKS) == list(LabView.param("task").choices)
    at = page(open_app, **TINY)
    box = at.selectbox(key="task")
    assert box.options == list(words.TASKS.values())
    box.set_value("recall").run()
    assert not at.exception
    assert address(at) == {"scheme": "rope", "task": "recall"} | TINY


def test_a_loss_has_the_unit_of_its_task() -> None:
    for task, unit in (("text", "nats a byte"), ("short_texts", "nats a byte"), ("recall", "nats")):
        asked = asked_of("rope", task=task)
        shown = pictures.sides(asked, {r.key: result(r, FLAT) for r in asked.runs})
        assert pictures.by_position(shown, "loss", asked.runs[0].setting).y_title == f"held-out loss ({unit})"
        assert pictures.training(shown).y_title == f"training loss ({unit})"
        assert f" 0.1 {unit} of the loss" in pictures.seen(shown, "loss")
        facts = pictures.key_numbers(shown, asked, compute.work(asked, {}), "loss", 60.0)
        assert f"lowest held-out loss, in {unit}, at" in facts[3][2]


def test_a_click_on_a_small_map_shows_the_head_large(open_app: Any, trained: Any) -> None:
    trained()
    at = page(open_app, **TINY, map_times="2", layer="0", head="3", map_scheme="0")
    keys = [b.proto.id.rsplit("-", 1)[1] for b in at.get("bidi_component")]
    assert {"map_heads_1", "map_heads_2", "map_attention_1", "map_attention_2"} <= set(keys)
    assert "rope, layer 0 head 3: at the training length" in text(at)


def test_the_line_whose_attention_is_shown() -> None:
    by_label = asked_of("none, alibi, rope(base=77), rope").by_label
    assert maps.chosen_line(by_label, -1) == "rope(base=77)"
    assert maps.chosen_line(by_label, 1) == "alibi"
    assert maps.chosen_line(asked_of("none, alibi").by_label, -1) == "none"


def test_heads_of_a_model_are_computed_once(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained()
    first = heads.attention(run, 32)
    monkeypatch.setattr(heads, "weights", lambda run: pytest.fail("computed again"))
    assert heads.attention(run, 32) is first


# ------------------------------------------------------------------ claims


def test_results_lead_to_the_claims_that_they_are_evidence_for(open_app: Any, folder: Path) -> None:
    from posenc_core.claims_table import CLAIMS

    asked = asked_of("alibi")
    keep(folder, result(asked.runs[0], FLAT))
    at = page(open_app, schemes="alibi", seeds="0")
    expected = {c.number for c in CLAIMS if asked.runs[0].key in {r.key for r in c.runs()}}
    assert expected
    links = [link.proto for link in at.get("page_link") if link.proto.page == "claims"]
    assert {int(re.search(r"claim=(\d+)", link.query_string)[1]) for link in links} == expected
