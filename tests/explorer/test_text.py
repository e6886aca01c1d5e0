"""Words of the app: complete for every scheme and scaling, and every query in them is legal and does something."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from explorer import state, text
from explorer.scaling_text import SCALING_TEXT
from explorer.views import VIEWS
from posenc_core import SCHEMES, Param, Spec, parse_spec
from posenc_core.frequencies import SCALINGS


def read(page: str, query: Mapping[str, str]) -> dict[str, Any]:
    """The state that a query gives; none of it may be refused."""
    values, rejected = state.read_link(page, {name: [value] for name, value in query.items()})
    assert rejected == (), f"{page}?{query}"
    return values


def names(query: Mapping[str, str]) -> set[str]:
    """The names that a query sets."""
    return {name for name in query if name != state.GO}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_is_described(scheme: str) -> None:
    about = text.SCHEME_TEXT[scheme]
    assert about.name.strip() == about.name != ""
    assert len(about.formula) > 5
    assert about.formula.count("{") == about.formula.count("}")
    assert "$" not in about.formula
    assert about.sentence.endswith((".", ", in"))  # the paper follows
    assert 20 < len(about.sentence) < 160
    url = urlsplit(about.paper.url)
    assert url.scheme == "https"
    assert url.netloc in ("arxiv.org", "aclanthology.org", "openreview.net", "proceedings.mlr.press")
    assert 2017 <= about.paper.year <= 2030
    if url.netloc == "arxiv.org":
        preprint = re.fullmatch(r"/abs/(\d\d)(0[1-9]|1[0-2])\.\d{4,5}", url.path)
        assert preprint is not None
        assert 0 <= about.paper.year - (2000 + int(preprint[1])) <= 1  # the year of the preprint or the next
    assert about.paper.title in about.paper.markdown
    assert f"({about.paper.url})" in about.paper.markdown


def test_texts_are_of_schemes_that_exist_and_names_differ() -> None:
    assert text.SCHEME_TEXT.keys() == SCHEMES.keys()
    assert text.ENCODING_TRIES.keys() == SCHEMES.keys()
    assert len({about.name for about in text.SCHEME_TEXT.values()}) == len(SCHEMES)


@pytest.mark.parametrize("hook", sorted({spec.hook for spec in SCHEMES.values()} - {"layers"}))
def test_every_kind_of_encoding_has_a_sentence_on_what_is_seen(hook: str) -> None:
    assert text.ENCODING_SEEN[hook].endswith(".")


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_scaling_is_described(scaling: str) -> None:
    formula, source = SCALING_TEXT[scaling]
    assert r"\omega_i" in formula or r"\theta" in formula
    assert formula.count("{") == formula.count("}")
    assert source
    if scaling != "none":
        assert "(https://arxiv.org/abs/" in source


def test_scalings_described_are_those_there_are() -> None:
    assert SCALING_TEXT.keys() == SCALINGS.keys() == set(SCHEMES["rope"].param("scaling").choices)


def needs(spec: type[Spec], field: Param) -> dict[str, Any]:
    """Other fields without which this one is not read, or not legal."""
    if field.name == "mrope_interleaved":
        return {"mrope_section": (8, 12, 12)}
    if field.when is None:
        return {}
    other, values = field.when
    return needs(spec, spec.param(other)) | {other: values[0]}


def test_formulae_follow_the_parameters() -> None:
    """A picture of scaled or rearranged parameters must not stand under the formula of the plain scheme."""
    for scheme, spec in SCHEMES.items():
        seen = {text.formula_of(spec())}
        for field in [
            p for p in spec.params() if p.kind in ("choice", "bool") and (scheme, p.name) != ("rope", "layout")
        ]:
            for value in field.choices or (not field.default,):
                if value != field.default:
                    formula = text.formula_of(spec(**needs(spec, field) | {field.name: value}))
                    assert formula.count("{") == formula.count("}")
                    assert formula not in seen, f"{scheme}: {field.name} = {value}"
                    seen.add(formula)


# ---------------------------------------------------------------- tries


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_has_something_to_try(scheme: str) -> None:
    tries = text.ENCODING_TRIES[scheme]
    assert tries
    assert len({t.label for t in tries}) == len(tries)
    for item in tries:
        assert item.then.endswith("."), item.label
        assert item.changes, item.label


TRIES = [(scheme, item) for scheme in SCHEMES for item in text.ENCODING_TRIES[scheme]]


@pytest.mark.parametrize(("scheme", "item"), TRIES, ids=[f"{s}-{t.label}" for s, t in TRIES])
def test_a_try_is_legal_and_changes_each_of_its_parameters(scheme: str, item: text.Try) -> None:
    page = "encodings" if item.page is None else item.page
    now = {} if "scheme" in item.changes else {"scheme": scheme}
    before = read(page, {"scheme": scheme})
    after = read(page, now | item.changes)
    assert after["scheme"] == item.changes.get("scheme", scheme)
    assert after != before
    for name in names(item.changes) - {"scheme"}:
        assert after[name] != before.get(name), f"{name} was {before.get(name)!r} already"


# ---------------------------------------------------------------- the story, presets, comparisons


@pytest.mark.parametrize("step", text.STORY, ids=lambda step: step.title)
def test_a_step_of_the_story_opens_what_it_says(step: text.Step) -> None:
    assert step.page in VIEWS
    assert step.page != ""
    assert step.sentence.endswith(".")
    values, default = read(step.page, step.query), read(step.page, {"scheme": step.query["scheme"]})
    assert values["scheme"] == step.query["scheme"]
    for name in names(step.query) - {"scheme", "d_head", "b_d_head"}:
        assert values[name] != default.get(name), f"{name} is {default.get(name)!r} anyway"


def test_the_story_meets_every_scheme() -> None:
    met = {step.query["scheme"] for step in text.STORY} | {step.query.get("b_scheme") for step in text.STORY}
    assert SCHEMES.keys() <= met
    assert len({step.title for step in text.STORY}) == len(text.STORY)


@pytest.mark.parametrize("page", VIEWS)
@pytest.mark.parametrize("name", text.PRESETS | text.COMPARISONS)
def test_presets_and_comparisons_are_legal_on_every_page(name: str, page: str) -> None:
    query = (text.PRESETS | text.COMPARISONS)[name]
    values = read(page, query)
    default = read(page, {"scheme": query["scheme"]})
    for parameter in names(query) - {"scheme"}:
        assert values[parameter] != default.get(parameter), f"{parameter} is {default.get(parameter)!r} anyway"


def test_presets_differ_from_each_other_and_every_scheme_but_integer_has_one() -> None:
    specs = [tuple(sorted(read("", query).items())) for query in text.PRESETS.values()]
    assert len(set(specs)) == len(specs)
    assert {query["scheme"] for query in text.PRESETS.values()} >= SCHEMES.keys() - {"integer"}


def test_the_two_comparisons_of_one_click() -> None:
    base = read("", text.COMPARISONS["RoPE base 10,000 against 500,000"])
    assert (base["scheme"], base["base"], base["b_scheme"], base["b_base"]) == ("rope", 1e4, "rope", 5e5)
    alibi = read("", text.COMPARISONS["RoPE against ALiBi"])
    assert (alibi["scheme"], alibi["b_scheme"]) == ("rope", "alibi")


# ---------------------------------------------------------------- what the pages really offer


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("page", VIEWS)
def test_every_link_on_a_page_is_legal_and_leads_somewhere_else(opened: Any, page: str, scheme: str) -> None:
    at = opened(page, f"scheme={scheme}")
    assert not at.exception
    here = read(page, {"scheme": scheme})
    links = [link.proto for link in at.get("page_link")]
    assert links, "nothing to try on this page"
    for link in links:
        query = dict(parse_qsl(link.query_string, keep_blank_values=True))
        assert query.pop(state.GO) == "1", link.label
        there = read(link.page, query)
        assert link.page != page or there != here, link.label


@pytest.mark.parametrize(
    ("mapping", "parts"),
    [
        ({"scheme": "rope", "rotary_fraction": 0.25}, [r"\theta^{-2i/16}", r"\theta = 10{,}000"]),
        ({"scheme": "rope", "scaling": "ntk", "factor": 4.0}, [r"\theta\, s^{64/(64-2)}", "s = 4"]),
        ({"scheme": "rope", "scaling": "yarn", "factor": 4.0}, ["s = 4", "L_0 = 8{,}192", "1.13863", "i - "]),
        ({"scheme": "rope", "scaling": "llama3", "factor": 8.0}, ["s = 8", "r_l = 1", "r_h = 4", r"k_i"]),
        ({"scheme": "rope", "mrope_section": [8, 12, 12]}, ["8,12,12"]),
        ({"scheme": "rope", "scaling": "proportional", "rotary_fraction": 0.75}, ["p = 0.75", r"\theta^{-2i/d}/s"]),
        ({"scheme": "alibi", "variant": "symmetric"}, ["|m - n|"]),
        ({"scheme": "sinusoidal", "endpoint": True, "layout": "concatenated"}, ["{p,i+d/2}", "-i/(d/2-1)"]),
        ({"scheme": "integer", "variant": "one_hot"}, ["e_p"]),
    ],
)
def test_the_formula_follows_the_parameters(mapping: dict[str, Any], parts: list[str]) -> None:
    formula = text.formula_of(parse_spec(mapping))
    assert all(part in formula for part in parts), formula
