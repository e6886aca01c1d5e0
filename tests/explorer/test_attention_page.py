"""The Attention page: labels and numbers by hand, and every scheme through the app."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from explorer.charts import curves
from explorer.compute import attention as compute
from explorer.compute.common import checkpoint, records
from explorer.pictures import attention as pictures
from explorer.views import SAMPLE, AttentionView
from posenc_core import SCHEMES, parse_query, parse_spec
from posenc_core.tasks import english
from posenc_core.train import loss_by_position

ROOT = Path(__file__).parents[2]
TRAINED = sorted({r.spec.scheme for r in records().values()})


def spec_of(scheme, **texts):
    spec, problems = parse_query({"scheme": scheme} | texts)
    assert not problems
    return spec


def sides_of(*specs, text=SAMPLE, order="written", shift=0):
    read = pictures.reading("text", text, 0, order)
    return pictures.sides(specs, read.data, shift), read


def numbers_of(*specs, **options):
    shown, read = sides_of(*specs, **options)
    facts = pictures.key_numbers(shown, read, options.get("shift", 0))
    assert 3 <= len(facts) <= 5
    return {name: value for name, value, _ in facts}


def open_page(**query):
    app = AppTest.from_file(str(ROOT / "explorer" / "app.py"), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = str(value)
    app.switch_page("../pages/attention.py")
    app.run()
    assert not app.exception
    return app


def maps_of(app):
    return [e.proto.id for e in app.get("bidi_component") if "map_" in e.proto.id]


def said(app):
    return " ".join(e.value for kind in (app.info, app.markdown, app.caption) for e in kind).replace("\\", "")


# ---------------------------------------------------------------- tokens


def test_every_byte_has_a_label():
    assert pictures.token_labels(b"a b\n\t") == ("a", "␣", "b", "⏎", "⇥")
    assert pictures.token_labels("你é🙂".encode()) == ("你", "·", "·", "é", "·", "🙂", "·", "·", "·")
    assert pictures.token_labels("你".encode()[:2] + b"x\xff") == ("0xE4", "0xBD", "x", "0xFF")
    assert pictures.token_labels(b"\x00\x7f") == ("U+0000", "U+007F")
    assert pictures.token_labels("e\u0301\u200d".encode()) == ("e", "◌\u0301", "·", "U+200D", "·", "·")
    assert pictures.token_labels(b"") == ()


@pytest.mark.parametrize("text", ["你好🙂 mixed\n", "\ud83d", "a" * 10_000, "🙂" * 10_000, "\n"])
def test_labels_are_one_a_token_and_all_visible(text):
    read = pictures.reading("text", text, 0, "written")
    assert 1 <= len(read.data) <= compute.MAX_TOKENS
    assert len(read.labels) == len(read.data)
    assert all(label.strip() for label in read.labels)


def test_all_byte_names_differ():
    assert len({pictures.byte_name(b) for b in range(256)}) == 256
    assert pictures.byte_name(0xE4) == "0xE4"


def test_too_much_text_is_said_with_numbers():
    long = pictures.reading("text", "é" * 600, 0, "written")
    assert long.notice == "The text has 1,200 bytes; the first 1,024 are read."
    assert pictures.reading("text", "é" * 512, 0, "written").notice == ""
    empty = pictures.reading("text", "", 0, "written")
    assert empty.data == SAMPLE.encode()
    assert "empty" in empty.notice


def test_shuffling_keeps_bytes_and_moves_labels_with_them():
    written, shuffled = (pictures.reading("text", "the quick é fox", 0, o) for o in ("written", "shuffled"))
    assert shuffled.data != written.data
    assert sorted(shuffled.data) == sorted(written.data)
    assert sorted(shuffled.labels) == sorted(written.labels)
    assert shuffled.written == written.data
    assert shuffled == pictures.reading("text", "the quick é fox", 0, "shuffled")


def test_held_out_text_grows_from_the_same_start():
    assert compute.held_out(1024)[:16] == compute.held_out(16)
    assert len(compute.held_out(1024)) == 1024


# ---------------------------------------------------------------- runs


def test_loss_is_the_cross_entropy_of_the_next_byte():
    shown, read = sides_of(spec_of("rope"))
    run = shown[0].run
    model, _ = checkpoint("rope")
    tokens = torch.tensor(list(read.data))
    logits = model(tokens[None], torch.arange(len(tokens)))[0].double()
    by_hand = [
        math.log(sum(math.exp(x) for x in logits[i].tolist())) - logits[i, tokens[i + 1]].item()
        for i in range(len(tokens) - 1)
    ]
    assert math.isnan(run.loss[0])
    np.testing.assert_allclose(run.loss[1:], by_hand, atol=2e-4)
    assert run.mean_loss == pytest.approx(float(np.mean(by_hand)), abs=1e-4)


def test_thumbnails_hold_all_heads_and_never_more_cells_than_allowed():
    for text, side in ((SAMPLE, len(SAMPLE)), ("x" * 129, 65), ("x" * 1024, 128)):
        shown, read = sides_of(spec_of("alibi"), text=text)
        panels = pictures.thumbnails(shown[0], read)
        assert len(panels) == 8
        assert {p.values.shape for p in panels} == {(side, side)}
        assert all(np.isnan(p.values[0, 1:]).all() for p in panels)
        assert panels[5].title == "layer 1 head 1"


def test_large_map_holds_weights_that_sum_to_one():
    shown, read = sides_of(spec_of("rope"), spec_of("alibi"))
    first, second = pictures.large_maps(shown, read, 1, 2, query=3)
    assert first.domain == second.domain
    assert first.x.labels == read.labels
    np.testing.assert_allclose(np.nansum(first.values, -1), 1, atol=1e-5)
    assert np.isnan(first.values[np.triu_indices(len(read.data), 1)]).all()
    difference = pictures.difference_map([first, second], shown)
    np.testing.assert_allclose(np.nansum(difference.values, -1), 0, atol=1e-5)
    assert first.guides[0].value == 3


def test_guesses_are_probabilities_and_the_likeliest_come_first():
    shown, read = sides_of(spec_of("rope"))
    np.testing.assert_allclose(np.exp(shown[0].run.log_probabilities).sum(-1), 1, atol=1e-5)
    made = pictures.guesses(shown, read, len(read.data) - 1)
    assert made.names == len(made.data) == pictures.GUESSES
    assert made.data["value"].is_monotonic_decreasing
    assert made.data["name"][0] == "n"  # "…The while stateme" goes on with an n
    assert made.data["value"][0] > 0.5
    inside = pictures.guesses(shown, read, 0)
    assert "comes h" in inside.sentence


def test_two_schemes_share_the_names_of_their_guesses():
    shown, read = sides_of(spec_of("rope"), spec_of("none"))
    made = pictures.guesses(shown, read, 10)
    assert len(made.data) == 2 * made.names
    assert set(made.data["series"]) == {s.name for s in shown}


def test_tables_end():
    spec = spec_of("learned")
    shown, read = sides_of(spec, text="x" * 200)
    run = shown[0].run
    rows = compute.defined(compute.fit(spec).spec)
    assert run.seen == rows == 128
    assert np.isfinite(run.loss[1:rows]).all()
    assert np.isnan(run.loss[rows:]).all()
    large = pictures.large_maps(shown, read, 0, 0, 0)[0]
    assert np.isnan(large.values[rows:]).all()
    assert "past the end of the table" in large.undefined_label
    assert pictures.guesses(shown, read, 150).names == 0
    assert pictures.marked_query(shown, -1) == rows - 1
    assert np.isnan(compute.loss_past_training(shown[0].fit.spec, compute.RECORDED_WINDOWS)[rows:]).all()


def test_loss_curve_names_the_tokens():
    shown, read = sides_of(spec_of("rope"))
    lines = pictures.loss_lines(shown, read)
    assert list(lines.data["token"]) == list(read.labels[1:])
    made = curves.curves(lines.data, x_title="token", y_title=lines.y_title, series=lines.series, note="token")
    assert any(t["field"] == "token" for t in made.to_dict()["layer"][1]["encoding"]["tooltip"])
    long, read = sides_of(spec_of("rope"), text="word " * 205)
    assert len(pictures.loss_lines(long, read).data) == 1 + math.ceil(1023 / 4)  # and the training length
    one, read = sides_of(spec_of("rope"), text="\n")
    assert pictures.loss_lines(one, read) is None
    assert "alone" in pictures.loss_sentence(one, read)


# ---------------------------------------------------------------- what positions do


def test_shuffling_moves_everything_but_position_free_attention():
    values = numbers_of(spec_of("none"), order="shuffled")
    assert float(values["change without mask"]) < 1e-5
    assert float(values["loss"].split()[0]) > float(values["loss as written"].split()[0]) + 0.5
    for scheme in set(TRAINED) - {"none"}:
        spec = compute.fit(spec_of(scheme)).spec
        assert compute.permutation_change(spec, SAMPLE.encode()) > 0.05


@pytest.mark.parametrize(
    "spec",
    [
        spec_of("alibi", n_heads="4", slopes="0,0,0,0"),
        spec_of("hybrid", layers="alibi(n_heads=4, slopes=0,0,0,0), none"),
        spec_of("hybrid", layers="none, alibi(n_heads=4, slopes=0,0,0,0)"),
    ],
)
def test_alibi_of_slope_zero_knows_the_order_by_the_mask_alone(spec):
    if not compute.has_model(spec):
        pytest.skip("no checkpoint")
    values = numbers_of(spec, order="shuffled")
    assert float(values["change without mask"]) < 1e-5
    shown, read = sides_of(spec, order="shuffled")
    assert "the causal mask alone" in pictures.loss_sentence(shown, read)
    shown, read = sides_of(spec_of("alibi"), order="shuffled")
    assert "by its positions" in pictures.loss_sentence(shown, read)
    assert any("both ways" in meaning for _, _, meaning in pictures.key_numbers(shown, read, 0))


@pytest.mark.parametrize("scheme", ["alibi", "rope", "none"])
def test_unmasking_changes_nothing_but_the_mask(scheme):
    spec = compute.fit(spec_of(scheme)).spec
    run = compute.run(compute.unmasked(spec), SAMPLE.encode(), 0)
    np.testing.assert_allclose(run.loss, compute.run(spec, SAMPLE.encode(), 0).loss, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "then"),
    [
        ("sinusoidal, rope", "picture changes"),
        ("integer, none", "picture changes"),
        ("alibi, rope", "picture stays"),
        ("none, rope", "picture stays"),
        ("none, none", "Nothing changes"),
        ("learned, rope", "Refused"),
    ],
)
def test_what_a_shift_does_to_a_hybrid_is_said_by_its_first_layer(layers, then):
    spec = spec_of("hybrid", layers=layers)
    if not compute.has_model(spec):
        pytest.skip("no checkpoint")
    assert then in pictures.map_tries([spec], AttentionView())[1].then
    fitted = compute.fit(spec).spec
    if compute.possible_shift(fitted, len(SAMPLE), 1000):
        logit, _ = compute.shift_change(fitted, SAMPLE.encode(), 1000)
        assert (logit > 0.1) == (then == "picture changes")


def test_what_a_shift_does_is_said_of_both_sides():
    then = pictures.map_tries([spec_of("rope"), spec_of("sinusoidal")], AttentionView())[1].then
    assert then.startswith("RoPE: The picture stays")
    assert "Sinusoidal: The loss rises" in then
    same = pictures.map_tries([spec_of("rope"), spec_of("alibi")], AttentionView())[1].then
    assert same == "The picture stays: scores see distances only."


def test_shifting_changes_nothing_for_relative_schemes():
    for scheme in ("none", "rope", "alibi"):
        logit, loss = compute.shift_change(compute.fit(spec_of(scheme)).spec, SAMPLE.encode(), 1000)
        assert logit < 1e-4
        assert abs(loss) < 1e-4
    logit, _ = compute.shift_change(compute.fit(spec_of("sinusoidal")).spec, SAMPLE.encode(), 1000)
    assert logit > 1


def test_a_table_refuses_a_shift_it_has_no_rows_for():
    shown, _ = sides_of(spec_of("learned"), shift=1000)
    assert shown[0].shift == 0
    assert "can move by at most 75" in " ".join(pictures.notes(shown, 1000))
    assert numbers_of(spec_of("learned"), shift=1000)["logits move"] == "undefined"
    room = 128 - len(SAMPLE)
    shown, _ = sides_of(spec_of("learned"), shift=room)
    assert shown[0].shift == room
    assert not pictures.notes(shown, room)


def test_the_reader_s_parameters_act_on_the_trained_weights():
    trained = compute.fit(spec_of("rope"))
    changed = compute.fit(spec_of("rope", base="500000"))
    assert not trained.changed
    assert changed.changed == (("base", "10000", "500000"),)
    assert "with base 10,000; run with base 500,000" in pictures.weights_sentence(changed)
    data = SAMPLE.encode()
    before = compute.run(trained.spec, data, 0).loss
    after = compute.run(changed.spec, data, 0).loss
    assert np.nanmax(np.abs(before - after)) > 0.01
    original, _ = checkpoint("rope")
    assert original.encoding.spec == trained.spec  # the shared checkpoint stays as it was
    assert compute.model(changed.spec).blocks is original.blocks
    compute.run.clear()
    np.testing.assert_array_equal(compute.run(trained.spec, data, 0).loss, before)


def test_a_learned_table_stays_as_trained_and_its_offset_acts():
    fit = compute.fit(spec_of("learned", max_position_embeddings="512", d_model="64", offset="2"))
    assert fit.spec == parse_spec({"scheme": "learned", "max_position_embeddings": 128, "d_model": 128, "offset": 2})
    assert "128 rows" in fit.notes[0]
    made, (original, _) = compute.model(fit.spec), checkpoint("learned")
    assert made.encoding.table is original.encoding.table
    assert torch.equal(made.encoding.vectors(torch.tensor([0])), original.encoding.vectors(torch.tensor([2])))


@pytest.mark.parametrize(
    ("scheme", "texts", "field", "value", "said_"),
    [
        ("alibi", {"n_heads": "6", "slopes": "1,.5,.25,.125,0,0"}, "slopes", (1, 0.5, 0.25, 0.125), "first 4 act"),
        ("alibi", {"n_heads": "2", "slopes": "1,.5"}, "slopes", (), "paper's slopes"),
        ("rope", {"rotary_fraction": "0.35", "d_head": "80"}, "rotary_fraction", 0.375, "0.375 acts instead"),
        ("rope", {"rotary_fraction": "0.01", "d_head": "1024"}, "rotary_fraction", 0.0625, "0.0625 acts instead"),
    ],
)
def test_what_does_not_fit_the_model_is_changed_and_said(scheme, texts, field, value, said_):
    fit = compute.fit(spec_of(scheme, **texts))
    assert getattr(fit.spec, field) == value
    assert said_ in " ".join(fit.notes)
    assert np.isfinite(compute.run(fit.spec, SAMPLE.encode(), 0).mean_loss)


@pytest.mark.skipif("hybrid" not in TRAINED, reason="no hybrid checkpoint")
def test_a_hybrid_of_another_depth_is_cut_or_repeated():
    fit = compute.fit(spec_of("hybrid", layers="alibi, rope*3"))
    assert [s.scheme for s in fit.spec.layers] == ["alibi", "rope"]
    assert "first 2 of the list act" in fit.notes[0]
    fit = compute.fit(spec_of("hybrid", layers="rope(base=500000), rope"))
    assert fit.changed == (("layers", "alibi, rope", "rope(base=500000), rope"),)
    fit = compute.fit(spec_of("hybrid", layers="none"))
    assert [s.scheme for s in fit.spec.layers] == ["none", "none"]
    assert "the list repeats" in fit.notes[0]


def test_the_known_picture_past_the_training_length():
    count = compute.RECORDED_WINDOWS
    rope, alibi = (compute.loss_past_training(compute.fit(spec_of(s)).spec, count) for s in ("rope", "alibi"))
    assert rope[-128:].mean() > rope[64:128].mean() + 1
    assert alibi[-128:].mean() < alibi[64:128].mean() + 0.3
    shown, _ = sides_of(spec_of("rope", base="500000"))
    lines = pictures.held_out_lines(shown)
    assert [n for n, _ in lines.series] == ["RoPE (base 500,000)", "as trained"]
    assert lines.dashed == ("as trained",)


def test_recorded_losses_are_those_of_the_windows_said():
    spec = compute.fit(spec_of("rope")).spec
    assert compute.as_recorded(spec)
    assert compute.fit(spec).record.text_sha256 == english().digest
    recorded = compute.loss_past_training(spec, compute.RECORDED_WINDOWS)
    text = english().held_out
    again = loss_by_position(compute.model(spec), text, compute.MAX_TOKENS, compute.RECORDED_WINDOWS)
    np.testing.assert_allclose(recorded, again, atol=1e-3)


@pytest.mark.parametrize("beside", [(), ("alibi",)])
def test_all_lines_of_one_picture_read_the_same_text(beside):
    """A change that changes nothing must not seem to gain anything, nor may a scheme beside it read another text."""
    shown, _ = sides_of(spec_of("rope", base="10000.001"), *map(spec_of, beside))
    lines = pictures.held_out_lines(shown)
    drawn = [lines.data.query("part == 'line' and series == @name")["y"].to_numpy() for name, _ in lines.series]
    np.testing.assert_allclose(drawn[0], drawn[-1], atol=1e-3)
    assert lines.dashed == ("RoPE as trained" if beside else "as trained",)
    if beside:
        alone = loss_by_position(compute.model(shown[1].fit.spec), english().held_out, 1024, compute.LOSS_WINDOWS)
        np.testing.assert_allclose(drawn[1], alone.reshape(-1, pictures.BIN).mean(-1), atol=1e-3)
    sentence = pictures.held_out_sentence(shown)
    assert f"{compute.LOSS_WINDOWS} passages" in sentence
    assert "RoPE (base 10,000.001): " in sentence
    assert "as trained: " in sentence


def test_trained_parameters_beside_changed_ones_need_no_third_line():
    shown, _ = sides_of(spec_of("rope"), spec_of("rope", base="500000"))
    assert len(pictures.held_out_lines(shown).series) == 2
    shown, _ = sides_of(spec_of("rope", base="100"), spec_of("alibi", n_heads="4", slopes="1,1,1,1"))
    assert pictures.held_out_lines(shown).dashed == ("RoPE as trained", "ALiBi as trained")


def test_captions_name_the_positions_and_the_text_behind_the_numbers():
    shown, _ = sides_of(spec_of("rope"))
    loss, attention = pictures.held_out_sentence(shown), pictures.drift_sentence(shown, 1, 0)
    for sentence in (loss, attention):
        assert "64 to 127" in sentence
        assert "896 to 1,023" in sentence
        assert "training length" not in sentence
    assert f"{compute.RECORDED_WINDOWS} passages" in loss
    assert compute.DRIFT_WINDOWS == 1
    assert "one passage of 1,024 held-out bytes" in attention
    values = compute.loss_past_training(shown[0].fit.spec, compute.RECORDED_WINDOWS)
    assert f"RoPE: {values[64:128].mean():.2f} → {values[896:].mean():.2f}." in loss


def test_a_table_without_these_positions_says_so():
    shown, _ = sides_of(spec_of("learned", offset="64"))
    assert "no such positions" in pictures.held_out_sentence(shown)
    assert "no such positions" in pictures.drift_sentence(shown, 1, 0)
    assert "nan" not in pictures.held_out_sentence(shown) + pictures.drift_sentence(shown, 1, 0)
    shown, _ = sides_of(spec_of("learned"))
    assert "its table ends" in pictures.held_out_sentence(shown)


def test_two_sides_have_different_names_and_colours():
    shown, _ = sides_of(spec_of("rope"), spec_of("rope"))
    assert len({s.name for s in shown}) == len({s.colour for s in shown}) == 2
    numbers_of(spec_of("rope"), spec_of("alibi"), order="shuffled", shift=8)


def test_links_keep_what_the_page_shows():
    view = AttentionView(source="held_out", length=1024, head=2)
    kept = {"source": "held_out", "length": "1024", "head": "2"}
    assert pictures.shuffle_try(view).changes == kept | {"order": "shuffled"}
    for spec in (spec_of(s) for s in SCHEMES):
        for item in (*pictures.map_tries([spec], view), pictures.past_try(spec, view)):
            names = {n: t for n, t in item.changes.items() if n not in {p.name for p in AttentionView.params()}}
            mine = {n: t for n, t in names.items() if not n.startswith("b_")}
            _, problems = parse_query({"scheme": spec.scheme} | mine)
            assert not problems


# ---------------------------------------------------------------- the page


@pytest.mark.parametrize("scheme", TRAINED)
def test_every_scheme_opens(scheme):
    app = open_page(scheme=scheme)
    assert 3 <= len(app.metric) <= 5
    assert len(maps_of(app)) == 2
    assert len(app.get("vega_lite_chart")) == 5
    assert len([m for m in app.markdown if m.value.startswith("## Attention")]) == 1


@pytest.mark.parametrize("text", ["你好，世界", "🙂👩‍👩‍👧", "x" * 10_000, "", "\n", "a", "$x$ `*_[<&"])
def test_any_text_opens(text):
    app = open_page(text=text)
    assert app.text_area[0].value == text
    if not text:
        assert "sample sentence is read" in said(app)
    if len(text) > 1024:
        assert "10,000 bytes; the first 1,024" in said(app)


def test_the_link_sets_the_widgets():
    app = open_page(scheme="alibi", source="held_out", length=64, order="shuffled", shift=128, layer=0, head=3, query=9)
    assert app.session_state["source"] == "held_out"
    assert app.session_state["length"] == 64
    assert app.session_state["order"] == "shuffled"
    assert app.session_state["shift"] == 128
    assert (app.slider(key="layer").value, app.slider(key="head").value, app.slider(key="query").value) == (0, 3, 9)
    assert {m.label for m in app.metric} == {
        "loss",
        "loss as written",
        "change without mask",
        "logits move",
        "loss moves",
    }


def test_bad_values_of_a_link_are_said_and_replaced():
    app = open_page(layer=7, query=5000, shift=10**12)
    assert any("layer" in w.value and "shift" in w.value for w in app.warning)
    assert app.slider(key="layer").value == 1


def test_a_query_past_the_text_is_brought_back():
    assert open_page(query=900, text="short").slider(key="query").value == 4


def test_compare_shows_both_and_their_difference():
    app = open_page(scheme="rope", b_scheme="alibi", source="held_out", length=256)
    assert len(maps_of(app)) == 5  # two strips, two large maps, the difference
    assert {"loss, RoPE", "loss, ALiBi"} <= {m.label for m in app.metric}


def test_a_scheme_without_a_checkpoint_is_said(monkeypatch):
    others = {n: r for n, r in records().items() if r.spec.scheme not in ("sinusoidal", "learned")}
    monkeypatch.setattr(compute, "records", lambda: others)
    app = open_page(scheme="sinusoidal", shift=8)
    assert "No toy model was trained with Sinusoidal" in said(app)
    assert not app.metric
    app = open_page(scheme="hybrid", layers="learned, rope")
    assert "No toy model was trained with Hybrid" in said(app)
    app = open_page(scheme="rope", b_scheme="sinusoidal")
    assert "No toy model was trained with Sinusoidal" in said(app)
    assert len(maps_of(app)) == 2
    app = open_page(scheme="sinusoidal", b_scheme="learned")
    assert "with Sinusoidal or Learned table" in said(app)


def test_shift_of_a_table_is_explained():
    assert "Shown at shift 0" in said(open_page(scheme="learned", shift=1000))
