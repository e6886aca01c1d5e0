"""Every parameter has a widget made from its Param; links, scheme changes and presets set them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from explorer import limits, widgets
from explorer.text import COMPARISONS, PRESETS
from explorer.views import VIEWS, SharedView
from posenc_core import SCHEMES, Param, Spec, parse_query
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.spec import LISTS, number_text

PARAMS = [(scheme, limits.shown(p)) for scheme, spec in SCHEMES.items() for p in spec.params()]
NAMES = [f"{scheme}-{p.name}" for scheme, p in PARAMS]
PREFIXES = ("", "b_")


def needs(p: Param) -> dict[str, str]:
    """The parameters without which `p` is not read."""
    if p.name == "mrope_interleaved":
        return {"mrope_section": "8,12,12"}
    if p.when is None:
        return {}
    other = SCHEMES["rope"].param(p.when[0]) if p.when[0] in ("scaling", "ramp") else None
    return (needs(other) if other else {}) | {p.when[0]: p.when[1][0]}


def candidates(p: Param) -> list[str]:
    """Texts of values that differ from the default, likelier ones first."""
    if p.kind == "bool":
        return ["false" if p.default else "true"]
    if p.kind == "choice":
        return [c for c in p.choices if c != p.default]
    if p.kind == "text":
        return ["ab", "c"]
    if p.kind == "layers":
        return ["rope*2, none"]
    assert p.minimum is not None
    assert p.maximum is not None
    if p.kind == "floats":
        return [",".join(["0.5"] * n) for n in range(1, 65)]
    if p.kind == "ints":
        return ["8,12,12"]
    step = p.step or 1
    values = [*p.ticks, p.minimum, p.minimum + step, (p.minimum + p.maximum) / 2, p.maximum]
    values = [int(v) if p.kind == "int" else v for v in values]
    return [number_text(v) for v in values if v != p.default and p.minimum <= v <= p.maximum]


def other(scheme: str, p: Param) -> dict[str, str]:
    """A legal query that gives `p` a value which is not its default."""
    for text in candidates(p):
        query = {"scheme": scheme, p.name: text} | needs(p)
        spec, problems = parse_query(query)
        if not problems and getattr(spec, p.name) != p.default:
            return query
    raise AssertionError(f"no legal value of {scheme}.{p.name} but its default was found")


def widget(at: Any, key: str) -> Any:
    """The element with this key, whatever its kind; None if there is none."""
    kinds = (*at.slider, *at.select_slider, *at.selectbox, *at.text_input, *at.text_area, *at.toggle)
    found = [w for w in (*kinds, *at.multiselect, *at.get("button_group")) if w.key == key]
    assert len(found) <= 1
    return found[0] if found else None


def assert_made_from(made: Any, p: Param) -> None:
    """Kind, range, options and help of a widget as the Param says."""
    assert made is not None, f"{p.name} has no widget"
    assert made.label == p.name.replace("_", " ") or made.proto.label == p.name.replace("_", " ")
    help_text = made.proto.help
    assert f"`{made.key}`" in help_text
    assert p.meaning in help_text
    assert p.legal in help_text
    if p.kind == "choice":
        assert made.type in ("button_group", "selectbox")
        assert [str(o) for o in made.options] == list(p.choices)
    elif p.kind == "bool":
        assert made.type == "toggle" or type(made).__name__ == "Toggle"
    elif p.kind in LISTS:
        assert type(made).__name__ == "TextInput"
    elif p.kind == "text":
        assert type(made).__name__ == "TextArea"
        assert made.proto.max_chars == p.max_length
    elif p.ticks:
        assert type(made).__name__ == "SelectSlider"
        shown = [float(o.replace(",", "")) for o in made.options]
        assert shown == sorted(shown)
        assert set(p.ticks) <= set(shown)
        assert set(shown) - set(p.ticks) <= {made.value}
        assert p.minimum <= shown[0]
        assert shown[-1] <= p.maximum
    else:
        assert type(made).__name__ == "Slider"
        assert (made.min, made.max, made.step) == (p.minimum, p.maximum, p.step or 1)


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(value)
    return value if isinstance(value, str) else number_text(value)


# ---------------------------------------------------------------- every parameter of every scheme


@pytest.mark.parametrize(("scheme", "p"), PARAMS, ids=NAMES)
def test_every_parameter_has_a_widget_made_from_it_and_set_by_a_link(
    open_app: Any, address: Any, scheme: str, p: Param
) -> None:
    query = other(scheme, p)
    at = open_app("", query)
    assert not at.exception
    assert not at.warning
    made = widget(at, p.name)
    assert_made_from(made, p)
    expected, _ = parse_query(query)
    assert as_text(made.value) == expected.field_text(p.name)
    assert at.session_state[widgets.CHOSEN].spec == expected
    assert address(at) == expected.to_query()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_second_scheme_has_widgets_of_its_own(open_app: Any, scheme: str) -> None:
    params = [limits.shown(p) for p in SCHEMES[scheme].params() if p.when is None]
    query = {"scheme": "rope", "b_scheme": scheme}
    if params:
        query |= {"b_" + k: v for k, v in other(scheme, params[0]).items()}
    at = open_app("", query)
    assert not at.exception
    assert not at.warning
    expected, _ = parse_query({k.removeprefix("b_"): v for k, v in query.items() if k.startswith("b_")})
    assert at.session_state[widgets.CHOSEN].second == expected
    assert at.session_state[widgets.CHOSEN].spec == RopeSpec()
    for p in params:
        assert_made_from(widget(at, "b_" + p.name), p)
        assert as_text(widget(at, "b_" + p.name).value) == expected.field_text(p.name)


HIDDEN = [(scheme, p) for scheme, p in PARAMS if p.when is not None]


@pytest.mark.parametrize(("scheme", "p"), HIDDEN, ids=[f"{s}-{p.name}" for s, p in HIDDEN])
def test_a_parameter_that_is_not_read_has_no_widget(open_app: Any, scheme: str, p: Param) -> None:
    at = open_app("", {"scheme": scheme, "b_scheme": scheme})
    assert p.when is not None
    for prefix in PREFIXES:
        decides = widget(at, prefix + p.when[0])
        assert decides is None or decides.value not in p.when[1]
        assert widget(at, prefix + p.name) is None
    for name, value in needs(p).items():
        widget(at, name).set_value(value).run()
    assert widget(at, p.name) is not None
    assert widget(at, "b_" + p.name) is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_only_the_schemes_own_parameters_are_on_screen(open_app: Any, scheme: str) -> None:
    at = open_app("", {"scheme": scheme})
    every = {p.name for _, p in PARAMS}
    assert {name for name in every if widget(at, name)} == {p.name for p in SCHEMES[scheme].params() if p.when is None}


def test_values_between_the_stops_are_legal_and_become_a_stop(open_app: Any, address: Any) -> None:
    at = open_app("", "scheme=rope&base=12345.5&d_head=70")
    assert not at.warning
    assert at.session_state[widgets.CHOSEN].spec == RopeSpec(base=12345.5, d_head=70)
    assert widget(at, "base").value == 12345.5
    assert "12,345.5" in widget(at, "base").options
    assert address(at) == {"scheme": "rope", "d_head": "70", "base": "12345.5"}


# ---------------------------------------------------------------- the views of the pages

VIEW_PARAMS = [(page, p) for page, view in VIEWS.items() for p in view.params()]
# A config of layers that differ: NoPE in every fourth.
TWO_KINDS = (
    '{"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, '
    '"num_hidden_layers": 8, "rope_theta": 5e6}'
)
NEEDS = {  # the query with which a page shows the widget of a view's parameter
    ("encodings", "head"): {"scheme": "alibi"},
    ("encodings", "layer"): {"scheme": "hybrid"},
    ("decay", "head"): {"scheme": "alibi"},
    ("decay", "layer"): {"scheme": "hybrid"},
    ("decay", "curve"): {"scheme": "alibi"},
    ("timing", "device"): None,  # this machine may have one device only
    ("config", "kind"): {"config": TWO_KINDS},
}


def other_view(view: type[Spec], p: Param) -> str:
    for text in candidates(p):
        if view.parse_field(p.name, text) != p.default:
            return text
    raise AssertionError(f"no value of {p.name} but its default was found")


@pytest.mark.parametrize(("page", "p"), VIEW_PARAMS, ids=[f"{page}-{p.name}" for page, p in VIEW_PARAMS])
def test_every_parameter_of_a_page_has_a_widget_set_by_a_link_and_written_back(
    open_app: Any, address: Any, page: str, p: Param
) -> None:
    if (extra := NEEDS.get((page, p.name), {})) is None:
        pytest.skip(f"{p.name} has no second value here")
    text = other_view(VIEWS[page], p)
    query = extra | needs(p) | {p.name: text}
    at = open_app(page, query)
    assert not at.exception
    assert not at.warning
    made = widget(at, p.name)
    assert made is not None, f"{p.name} has no widget"
    assert p.meaning in made.proto.help
    assert as_text(made.value) == text
    assert address(at) == {"scheme": "rope"} | query


@pytest.mark.parametrize("p", SharedView.params(), ids=lambda p: p.name)
def test_the_shared_view_has_widgets_too(open_app: Any, p: Param) -> None:
    text = other_view(SharedView, p)
    at = open_app("", {p.name: text})
    assert_made_from(widget(at, p.name), p)
    assert as_text(widget(at, p.name).value) == text
    assert at.session_state[widgets.CHOSEN].seq_len == int(text)


def test_a_position_past_the_end_is_clamped_without_an_exception(open_app: Any, address: Any) -> None:
    at = open_app("encodings", "position=3000&distance=4000&seq_len=4096")
    assert widget(at, "position").value == 3000
    widget(at, "seq_len").set_value(16).run()
    assert not at.exception
    assert widget(at, "position").value == 15
    assert widget(at, "position").max == 15
    assert address(at) == {
        "scheme": "rope", "seq_len": "16", "position": "15", "distance": "15",
    }  # fmt: skip


# ---------------------------------------------------------------- changes


def test_a_change_is_written_to_the_address_and_a_default_leaves_it(open_app: Any, address: Any) -> None:
    at = open_app()
    assert address(at) == {}
    widget(at, "base").set_value(500_000.0).run()
    assert address(at) == {"scheme": "rope", "base": "500000"}
    widget(at, "layout").set_value("interleaved").run()
    assert address(at) == {"scheme": "rope", "base": "500000", "layout": "interleaved"}
    widget(at, "base").set_value(10_000.0).run()
    assert address(at) == {"scheme": "rope", "layout": "interleaved"}
    assert not at.exception


def test_every_scheme_keeps_its_own_values(open_app: Any, address: Any) -> None:
    at = open_app("", "scheme=rope&d_head=128&base=500000&scaling=linear&factor=4&seq_len=1024")
    widget(at, "scheme").set_value("sinusoidal").run()
    assert not at.exception
    assert address(at) == {"scheme": "sinusoidal", "seq_len": "1024"}
    widget(at, "scheme").set_value("alibi").run()
    assert address(at) == {"scheme": "alibi", "seq_len": "1024"}
    widget(at, "seq_len").set_value(512).run()
    assert address(at) == {"scheme": "alibi"}
    widget(at, "scheme").set_value("rope").run()
    assert address(at) == {
        "scheme": "rope", "d_head": "128", "base": "500000", "scaling": "linear", "factor": "4",
    }  # fmt: skip


def test_a_page_keeps_its_own_values(open_app: Any, address: Any) -> None:
    at = open_app("encodings", "scheme=alibi&head=5")
    at.switch_page("../pages/attention.py").run()
    assert address(at) == {"scheme": "alibi"}
    at.switch_page("../pages/encodings.py").run()
    assert address(at) == {"scheme": "alibi", "head": "5"}


@pytest.mark.parametrize(
    ("page", "query", "name", "used"),
    [
        ("encodings", "position=4000", "position = 4000", "511"),
        ("encodings", "scheme=alibi&head=200", "head = 200", "7"),
        ("attention", "query=1000", "query = 1000", "52"),
        ("attention", "source=held_out&text=hello", "text = 'hello'", "nothing"),
        ("encodings", "scheme=alibi&quantity=sin", "quantity = 'sin'", "nothing"),
    ],
)
def test_a_value_that_does_not_go_with_the_others_is_told(
    open_app: Any, page: str, query: str, name: str, used: str
) -> None:
    at = open_app(page, query)
    assert not at.exception
    (notice,) = [w.value.replace("\\", "") for w in at.warning]
    assert name in notice
    assert f"Used instead: {used}." in notice


def test_a_scheme_change_never_leaves_an_illegal_value_behind(open_app: Any, address: Any) -> None:
    """Same name, other range or other meaning: layout is a choice of both rope and sinusoidal, with other options."""
    at = open_app("", "scheme=rope&layout=interleaved")
    widget(at, "scheme").set_value("sinusoidal").run()
    assert not at.exception
    assert widget(at, "layout").value == "interleaved"
    widget(at, "layout").set_value("concatenated").run()
    widget(at, "scheme").set_value("rope").run()
    assert not at.exception
    assert widget(at, "layout").value == "interleaved"
    assert address(at) == {"scheme": "rope", "layout": "interleaved"}
    widget(at, "scheme").set_value("sinusoidal").run()
    assert address(at) == {"scheme": "sinusoidal", "layout": "concatenated"}


def test_the_second_scheme_comes_and_goes(open_app: Any, address: Any) -> None:
    at = open_app("encodings")
    widget(at, "b_scheme").set_value("alibi").run()
    assert address(at) == {"scheme": "rope", "b_scheme": "alibi"}
    widget(at, "b_n_heads").set_value(4).run()
    assert at.session_state[widgets.CHOSEN].second == AlibiSpec(n_heads=4)
    assert address(at) == {"scheme": "rope", "b_scheme": "alibi", "b_n_heads": "4"}
    widget(at, "b_scheme").set_value(widgets.NO_SECOND).run()
    assert at.session_state[widgets.CHOSEN].second is None
    assert address(at) == {}
    assert not at.exception


# ---------------------------------------------------------------- presets

PROMISED: dict[str, Spec] = {
    "RoPE, the paper's (base 10,000)": RopeSpec(layout="interleaved"),
    "Llama 3 8B": RopeSpec(d_head=128, base=500_000.0),
    "p-RoPE, three quarters of the spectrum": RopeSpec(d_head=128, scaling="proportional", rotary_fraction=0.75),
    "ALiBi, 12 heads (no power of two)": AlibiSpec(n_heads=12),
    "Learned, RoBERTa's offset": LearnedSpec(max_position_embeddings=514, offset=2),
    "Hybrid, NoPE every 4th layer": HybridSpec(layers=(*[RopeSpec()] * 3, NoneSpec())),
    "No position": NoneSpec(),
    "RoPE base 10,000 against 500,000": RopeSpec(),
    "RoPE against ALiBi": RopeSpec(),
}
PROMISED_SECOND: dict[str, Spec] = {
    "RoPE base 10,000 against 500,000": RopeSpec(base=500_000.0),
    "RoPE against ALiBi": AlibiSpec(),
}


@pytest.mark.parametrize("name", widgets.presets() | COMPARISONS)
def test_a_preset_gives_its_spec_whatever_was_set_before(open_app: Any, address: Any, name: str) -> None:
    query = (widgets.presets() | COMPARISONS)[name]
    expected, problems = parse_query({k: v for k, v in query.items() if not k.startswith("b_")})
    assert not problems
    assert expected == PROMISED.get(name, expected)
    at = open_app("", "scheme=rope&d_head=32&base=20&layout=interleaved&rotary_fraction=0.5&scaling=ntk&factor=2")
    if name in widgets.presets():
        widget(at, "_preset").set_value(name).run()
    else:
        at.button(key=f"_compare_{name}").click().run()
    assert not at.exception
    assert at.session_state[widgets.CHOSEN].spec == expected
    second = at.session_state[widgets.CHOSEN].second
    assert second == PROMISED_SECOND.get(name)
    shown = expected.to_query() | ({"b_" + k: v for k, v in second.to_query().items()} if second else {})
    assert address(at) == ({} if shown == {"scheme": "rope"} else shown)
    assert widget(at, "_preset").value is None  # so that the same one can be picked again


def test_at_least_25_public_models_are_presets() -> None:
    models = widgets.presets().keys() - PRESETS.keys()
    assert len(models) >= 25
    assert {"Llama 3.1 8B", "gpt-oss", "DeepSeek-V3", "Gemma 3 4B", "SmolLM3 3B"} <= models


def test_promises_name_presets_that_exist() -> None:
    assert PROMISED.keys() <= (widgets.presets() | COMPARISONS).keys()
    assert PROMISED_SECOND.keys() == COMPARISONS.keys()


# ---------------------------------------------------------------- what is typed


def error_text(at: Any) -> str:
    return re.sub(r"\\(.)", r"\1", " ".join(e.value for e in at.error))


@pytest.mark.parametrize(
    ("scheme", "field", "typed", "parts"),
    [
        ("alibi", "slopes", "1,2", ["slopes", "2 given", "8 numbers, one a head, or none"]),
        (
            "alibi",
            "slopes",
            "a lot",
            ["slopes", "'a lot'", "at most 256 numbers separated by commas, each from 0 to 64"],
        ),
        ("alibi", "slopes", "-1,1,1,1,1,1,1,1", ["slopes", "-1", "from 0 to 64"]),
        ("hybrid", "layers", "rope**2", ["layers", "rope**2", "1 to 128 layers"]),
        ("hybrid", "layers", "alibi, xpos*3", ["xpos", "one of none, integer"]),
        ("hybrid", "layers", "rope(base=0), none", ["rope.base", RopeSpec.param("base").legal]),
        ("hybrid", "layers", "", ["layers", "no layer is given"]),
    ],
)
def test_a_bad_list_is_explained_beside_its_box_and_the_page_still_draws(
    open_app: Any, address: Any, scheme: str, field: str, typed: str, parts: list[str]
) -> None:
    at = open_app("encodings", {"scheme": scheme})
    widget(at, field).set_value(typed).run()
    assert not at.exception
    assert len(at.error) == 1
    for part in parts:
        assert part in error_text(at)
    assert at.session_state[widgets.CHOSEN].spec == SCHEMES[scheme]()
    assert widget(at, field).value == typed  # what was typed stays, to be mended
    assert any(b.proto.component_name == "posenc_heatmap" for b in at.get("bidi_component"))
    assert address(at) == {"scheme": scheme}


def test_what_is_typed_is_shown_as_typed(open_app: Any) -> None:
    """Stars and other marks of Markdown in an error must not vanish into formatting."""
    at = open_app("encodings", {"scheme": "hybrid"})
    widget(at, "layers").set_value("rope **2** [x](y) `z`").run()
    left = re.sub(r"\\.", "", at.error[0].value)
    assert not re.search(r"[*\[\]`]", left), at.error[0].value


def test_a_good_list_is_taken(open_app: Any, address: Any) -> None:
    at = open_app("encodings", {"scheme": "alibi"})
    widget(at, "slopes").set_value("1,2,3,4,5,6,7,8").run()
    assert not at.error
    assert at.session_state[widgets.CHOSEN].spec == AlibiSpec(slopes=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0))
    assert address(at) == {"scheme": "alibi", "slopes": "1,2,3,4,5,6,7,8"}
    widget(at, "n_heads").set_value(4).run()  # now one of the two must give way, in words
    assert not at.exception
    assert "8 given" in error_text(at)
