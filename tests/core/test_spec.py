import json
import math

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import any_spec, specs, within

from posenc_core import SCHEMES, Problem, Spec, SpecError, parse_query, parse_spec
from posenc_core.schemes.alibi import AlibiSpec
from posenc_core.schemes.hybrid import HybridSpec
from posenc_core.schemes.integer import IntegerSpec
from posenc_core.schemes.learned import LearnedSpec
from posenc_core.schemes.none import NoneSpec
from posenc_core.schemes.rope import RopeSpec
from posenc_core.schemes.sinusoidal import SinusoidalSpec
from posenc_core.spec import LISTS, number_text

schemes = pytest.mark.parametrize("cls", SCHEMES.values(), ids=SCHEMES)
FIELDS = [pytest.param(c, p, id=f"{s}.{p.name}") for s, c in SCHEMES.items() for p in c.params()]
fields = pytest.mark.parametrize(("cls", "p"), FIELDS)
BOUNDED = [f for f in FIELDS if f.values[1].kind in ("int", "float", "floats")]
bounded = pytest.mark.parametrize(("cls", "p"), BOUNDED)


def needed(cls, p):
    """The fields, and their values, under which `p` is read."""
    if p.when is None:
        return BESIDE.get(p.name, {})
    other, read = p.when
    return needed(cls, cls.param(other)) | {other: read[0]}


BESIDE = {"mrope_interleaved": {"mrope_section": (16, 8, 8)}}  # legal only beside another field's value


def surroundings(cls, p):
    """Other fields under which `p` is read: as declared, then the rest as large and as small as it goes."""
    yield needed(cls, p)
    rest = [o for o in cls.params() if o.kind in ("int", "float") and o.name != p.name]
    ints = [o for o in rest if o.kind == "int" and o.when is None]
    alike = [o for o in rest if o.kind == "float" and p.when and o.when == p.when]
    for bound in ("maximum", "minimum"):
        yield {o.name: getattr(o, bound) for o in alike} | needed(cls, p)
        yield {o.name: int(getattr(o, bound)) for o in ints} | needed(cls, p)


def refusals(cls, name, value, **others):
    """What SpecError says about `name`, by the class and by parse_spec."""
    fields = others | {name: value}
    for make in (lambda: cls(**fields), lambda: parse_spec({"scheme": cls.scheme} | fields)):
        with pytest.raises(SpecError) as caught:
            make()
        found = [x for x in caught.value.problems if x.name.partition("[")[0] == name]
        assert found, f"{name} is not named in: {caught.value}"
        for problem in found:
            assert str(problem) in str(caught.value)
            assert problem.name in str(problem)
            assert problem.legal in str(problem)
        yield found


def refused_as_out_of_range(cls, p, value):
    hits = 0
    for others in surroundings(cls, p):
        for found in refusals(cls, p.name, value, **others):
            hits += any(x.legal == p.legal for x in found)
    return hits > 0


def accepted(cls, p, value):
    for others in surroundings(cls, p):
        try:
            return getattr(cls(**others | {p.name: value}), p.name) == value
        except SpecError:
            pass
    return False


# ------------------------------------------------------------------ declarations


@schemes
def test_ids_are_the_keys(cls):
    assert SCHEMES[cls.scheme] is cls
    assert cls.hook in ("none", "embed", "rotate", "bias", "layers")


@schemes
def test_defaults_are_legal_and_equal(cls):
    assert cls() == cls() == parse_spec({"scheme": cls.scheme})
    assert cls().scheme == cls.scheme
    assert hash(cls()) == hash(cls())


@schemes
def test_a_spec_is_frozen(cls):
    spec = cls()
    for p in cls.params():
        with pytest.raises(pydantic.ValidationError):
            setattr(spec, p.name, p.default)
    assert spec == cls()


@schemes
def test_params_are_the_fields_in_order(cls):
    assert [p.name for p in cls.params()] == list(cls.model_fields)
    for p in cls.params():
        assert cls.param(p.name) is p
    with pytest.raises(KeyError):
        cls.param("nonsense")


@fields
def test_param_is_complete(cls, p):
    assert len(p.meaning) > 5
    assert p.legal
    assert p.name.isidentifier()
    assert p.name == p.name.lower()
    if p.kind in ("int", "float", "ints", "floats"):
        assert p.minimum < p.maximum
    if p.kind == "int":
        assert p.unit
    if p.kind in LISTS:
        assert p.max_length >= 1
    if p.kind in ("int", "float"):
        assert p.minimum <= p.default <= p.maximum
        assert list(p.ticks) == sorted(set(p.ticks))
        assert all(p.minimum <= t <= p.maximum for t in p.ticks)
        assert p.ticks or p.step or p.maximum - p.minimum <= 1000
    if p.kind == "int":
        assert all(isinstance(t, int) and t % (p.step or 1) == 0 for t in p.ticks)
    if p.kind == "choice":
        assert len(set(p.choices)) == len(p.choices) >= 2
        assert p.default in p.choices
        assert all(c in p.legal for c in p.choices)
    if p.when:
        other, read = p.when
        assert set(read) < set(cls.param(other).choices)
        names = [o.name for o in cls.params()]
        assert names.index(other) < names.index(p.name)


@fields
def test_a_legal_value_is_kept(cls, p):
    if p.kind == "layers":
        assert accepted(cls, p, (NoneSpec(), RopeSpec()))
    elif p.kind == "choice":
        assert all(accepted(cls, p, c) for c in p.choices)
    elif p.kind == "bool":
        assert accepted(cls, p, True)
        assert accepted(cls, p, False)
    else:
        assert accepted(cls, p, p.default)
        assert all(accepted(cls, p, type(p.default)(t)) for t in p.ticks)


@bounded
def test_bounds_are_where_they_are_declared(cls, p):
    low, high = p.minimum, p.maximum
    if p.kind == "int":
        step = int(p.step or 1)
        inside, outside = [int(low), int(high)], [int(low) - step, int(high) + step, 10**12]
    elif p.kind == "float":
        inside, outside = [low, high], [math.nextafter(low, -math.inf), math.nextafter(high, math.inf), -1.0, 1e300]
    else:
        inside, outside = [(low,), (high,)], [(math.nextafter(low, -math.inf),), (math.nextafter(high, math.inf),)]
    for value in inside:
        assert accepted(cls, p, value), value
    for value in outside:
        assert refused_as_out_of_range(cls, p, value), value


@pytest.mark.parametrize(("cls", "p"), [f for f in BOUNDED if (f.values[1].step or 1) > 1])
def test_steps_of_whole_numbers_bind(cls, p):
    assert refused_as_out_of_range(cls, p, int(p.minimum) + 1)
    assert accepted(cls, p, int(p.minimum + p.step))


NOT_LEGAL = {
    "int": ["8", True, None, math.nan, math.inf, 2.5, 8.0, 10**12, 10**400, [], [8], {}],
    "float": ["8", True, None, math.nan, math.inf, -math.inf, 10**13, 10**400, [], [8.0], {}],
    "bool": ["true", 0, 1, None, math.nan, []],
    "choice": ["nonsense", "", 1, True, None, math.nan, [], {}],
    "ints": ["1", 1, True, None, ["1"], [True], [None], [1.0], [1.5], [math.nan], [[1]], [16, 16.0], [1] * 5000],
    "floats": ["1", 1.0, True, None, ["1"], [True], [None], [math.nan], [math.inf], [[1.0]], [0.5] * 5000],
    "layers": ["rope", 1, True, None, math.nan, [], ["rope"], [None], [1.0], [{}], [{"scheme": "rope"}] * 129],
}


@fields
def test_wrong_types_are_refused(cls, p):
    for value in NOT_LEGAL[p.kind]:
        list(refusals(cls, p.name, value, **needed(cls, p)))


@fields
def test_a_field_that_is_not_read_is_refused(cls, p):
    if p.when is None:
        assert cls().applies(p)
        return
    other, read = p.when
    idle = next(c for c in cls.param(other).choices if c not in read)
    value = another(p)
    around = needed(cls, cls.param(other))
    for found in refusals(cls, p.name, value, **around | {other: idle}):
        assert other in found[0].legal
        assert all(r in found[0].legal for r in read)
        assert idle in found[0].reason
    for choice in read:
        kept = cls(**around | {other: choice})
        assert kept.applies(p)
        assert p.name in kept.to_mapping()
    assert p.name not in cls(**around | {other: idle}).to_mapping()
    assert accepted(cls, p, value)


def another(p):
    """A legal value that is not the default."""
    if p.kind == "choice":
        return next(c for c in p.choices if c != p.default)
    if p.kind == "bool":
        return not p.default
    if p.kind in ("floats", "ints"):
        return (p.maximum,)
    return p.maximum if p.kind == "float" else int(p.maximum)


def test_a_field_under_a_field_that_is_not_read_is_not_read_either():
    """truncate hangs on ramp = index, ramp on scaling: ramp's default does not make truncate read."""
    with pytest.raises(SpecError, match=r"truncate = False .*ramp is not read.* read only while ramp is index"):
        RopeSpec(scaling="linear", truncate=False)
    with pytest.raises(SpecError, match=r"truncate = False .*ramp is rotations"):
        RopeSpec(scaling="yarn", ramp="rotations", truncate=False)
    assert "truncate" not in RopeSpec().to_mapping()
    assert RopeSpec(scaling="yarn", truncate=False).to_mapping()["truncate"] is False


def test_a_chain_of_conditions_holds_by_value_not_by_default():
    spec = RopeSpec(scaling="yarn")
    read = {p.name for p in RopeSpec.params() if spec.applies(p)}
    assert {"factor", "beta_fast", "ramp", "truncate", "mscale"} <= read
    assert not {"low_freq_factor", "short_factor", "dynamic_length"} & read
    assert {p.name for p in RopeSpec.params() if not RopeSpec().applies(p)} >= {"factor", "ramp", "truncate"}


@schemes
@pytest.mark.parametrize("name", ["nonsense", "Base", "d head", "", "model_fields", "a:b", "scheme:x"])
def test_unknown_names_are_refused_with_the_known_ones(cls, name):
    for found in refusals(cls, name, 1):
        assert found[0].reason == "unknown name"
        assert all(p.name in found[0].legal for p in cls.params())


@schemes
def test_self_is_an_unknown_name_too(cls):
    with pytest.raises(SpecError, match="self"):
        parse_spec({"scheme": cls.scheme, "self": 1})


@pytest.mark.parametrize("cls", [NoneSpec, RopeSpec])
def test_names_that_are_not_texts_are_refused(cls):
    with pytest.raises(SpecError, match="names are texts"):
        parse_spec({"scheme": cls.scheme, 5: 1})


def test_every_problem_is_listed_at_once():
    with pytest.raises(SpecError) as caught:
        parse_spec({"scheme": "rope", "d_head": 65, "base": 0.5, "layout": "sideways", "nonsense": 1, "factor": "8"})
    assert {p.name for p in caught.value.problems} == {"d_head", "base", "layout", "nonsense", "factor"}
    lines = str(caught.value).splitlines()
    assert len(lines) == 5
    for p in caught.value.problems:
        assert any(p.name in x and repr(p.value) in x and p.legal in x for x in lines)


def test_the_message_names_value_and_range():
    with pytest.raises(SpecError) as caught:
        RopeSpec(d_head=65, rotary_fraction=1.01)
    assert str(caught.value) == (
        "d_head = 65 is not legal; legal: a whole number from 2 to 1,024 in steps of 2\n"
        "rotary_fraction = 1.01 is not legal; legal: a number from 0.01 to 1"
    )
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("value", ["rpoe", "", None, 3, "Rope", ["rope"], math.nan])
def test_an_unknown_scheme_lists_the_known(value):
    with pytest.raises(SpecError) as caught:
        parse_spec({"scheme": value})
    assert caught.value.problems[0].name == "scheme"
    assert all(s in caught.value.problems[0].legal for s in SCHEMES)


@pytest.mark.parametrize("value", [None, 3, "rope", ["rope"], {}])
def test_what_is_no_mapping_is_refused(value):
    with pytest.raises(SpecError):
        parse_spec(value)


def test_a_long_value_is_cut_in_the_message():
    assert len(str(Problem("base", "x" * 100_000, "a number"))) < 120


def test_a_number_too_long_to_print_is_refused():
    with pytest.raises(SpecError, match="d_head"):
        parse_spec({"scheme": "rope", "d_head": 10**5000})


def test_deeply_nested_hybrids_are_refused():
    deep = {"scheme": "rope"}
    for _ in range(3000):
        deep = {"scheme": "hybrid", "layers": [deep]}
    with pytest.raises(SpecError):
        parse_spec(deep)


# ------------------------------------------------------------------ rules that involve several fields


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"d_head": 65}, "d_head"),
        ({"d_head": 10, "rotary_fraction": 0.5}, "rotary_fraction"),
        ({"d_head": 64, "rotary_fraction": 0.01}, "rotary_fraction"),
        ({"rotary_fraction": 0.0}, "rotary_fraction"),
        ({"rotary_fraction": 1.01}, "rotary_fraction"),
        ({"rotary_fraction": -0.5}, "rotary_fraction"),
        ({"base": 1.0}, "base"),
        ({"base": 0.0}, "base"),
        ({"base": -10_000.0}, "base"),
        ({"scaling": "linear", "factor": 0.99}, "factor"),
        ({"scaling": "linear", "factor": math.nan}, "factor"),
        ({"scaling": "linear", "factor": math.inf}, "factor"),
        ({"scaling": "linear", "factor": "8"}, "factor"),
        ({"factor": 2.0}, "factor"),
        ({"scaling": "ntk", "d_head": 2}, "rotary_fraction"),
        ({"scaling": "ntk", "d_head": 8, "rotary_fraction": 0.25}, "rotary_fraction"),
        ({"scaling": "proportional", "d_head": 8, "rotary_fraction": 0.2}, "rotary_fraction"),
        ({"scaling": "dynamic", "d_head": 2}, "rotary_fraction"),
        ({"scaling": "NTK"}, "scaling"),
        ({"scaling": "default"}, "scaling"),
        ({"scaling": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0}, "high_freq_factor"),
        ({"scaling": "yarn", "factor": 8.0, "beta_fast": 1.0, "beta_slow": 32.0}, "beta_fast"),
        ({"scaling": "ntk_by_parts", "factor": 8.0, "beta_slow": 33.0}, "beta_fast"),
        ({"scaling": "longrope", "short_factor": (1.0,) * 31}, "short_factor"),
        ({"scaling": "longrope", "long_factor": (1.0,) * 33}, "long_factor"),
        ({"scaling": "longrope", "rotary_fraction": 0.5, "long_factor": (1.0,) * 32}, "long_factor"),
        ({"scaling": "longrope", "long_factor": (1.0,) * 31 + (0.0,)}, "long_factor"),
        ({"scaling": "longrope", "short_factor": (1.0,) * 31 + (-1.0,)}, "short_factor"),
        ({"scaling": "yarn", "original_max_position_embeddings": 1}, "original_max_position_embeddings"),
        ({"scaling": "linear", "original_max_position_embeddings": 4096}, "original_max_position_embeddings"),
        ({"scaling": "yarn", "attention_factor": -1.0}, "attention_factor"),
        ({"scaling": "llama3", "attention_factor": 1.5}, "attention_factor"),
        ({"mrope_section": (16, 8, 7)}, "mrope_section"),
        ({"mrope_section": (16, 24, 24), "rotary_fraction": 0.5}, "mrope_section"),
        ({"mrope_section": (-1, 16, 17)}, "mrope_section"),
        ({"mrope_section": (8, 8, 8, 4, 4)}, "mrope_section"),
        ({"mrope_interleaved": True}, "mrope_interleaved"),
        ({"layout": "gptj"}, "layout"),
    ],
)
def test_rope_refuses(fields, name):
    with pytest.raises(SpecError) as caught:
        RopeSpec(**fields)
    assert [p.name for p in caught.value.problems] == [name]


def test_rope_names_the_odd_rotary_dim():
    with pytest.raises(SpecError, match=r"int\(10 · 0\.5\) = 5"):
        RopeSpec(d_head=10, rotary_fraction=0.5)


@pytest.mark.parametrize(
    ("fields", "rotary_dim", "rotated_pairs"),
    [
        ({"d_head": 128}, 128, 64),
        ({"d_head": 80, "rotary_fraction": 0.4}, 32, 16),
        ({"d_head": 128, "rotary_fraction": 0.25}, 32, 16),
        ({"d_head": 512, "rotary_fraction": 0.25, "scaling": "proportional"}, 512, 64),
        ({"d_head": 10, "rotary_fraction": 0.5, "scaling": "proportional"}, 10, 2),
        ({"d_head": 4, "scaling": "ntk", "factor": 2.0}, 4, 2),
        ({"d_head": 2}, 2, 1),
    ],
)
def test_rotary_dim(fields, rotary_dim, rotated_pairs):
    spec = RopeSpec(**fields)
    assert (spec.rotary_dim, spec.rotated_pairs) == (rotary_dim, rotated_pairs)
    assert spec.inv_freq().shape == (rotary_dim // 2,)
    assert int((spec.inv_freq() > 0).sum()) == rotated_pairs


@pytest.mark.parametrize(
    "fields",
    [
        {"scaling": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0},
        {"scaling": "yarn", "beta_fast": 2.0, "beta_slow": 2.0},
        {"scaling": "longrope", "short_factor": (1.0,) * 32, "long_factor": (2.0,) * 32},
        {"scaling": "longrope", "long_factor": (2.0,) * 32},
        {"scaling": "longrope", "rotary_fraction": 0.5, "long_factor": (2.0,) * 16},
        {"mrope_section": (8, 12, 12)},
        {"mrope_section": (32, 0, 0), "mrope_interleaved": True},
        {"d_head": 128, "rotary_fraction": 0.5, "mrope_section": (11, 11, 10), "mrope_interleaved": True},
        {"scaling": "yarn", "mrope_section": (8, 12, 12)},
        {"scaling": "proportional", "rotary_fraction": 0.25, "mrope_section": (8, 12, 12)},
    ],
)
def test_rope_accepts(fields):
    spec = RopeSpec(**fields)
    assert {k: getattr(spec, k) for k in fields} == fields
    assert parse_query(spec.to_query()) == (spec, ())


def test_refusals_of_several_fields_say_which_rule_is_broken():
    for fields, words in (
        ({"scaling": "yarn", "beta_fast": 1.0, "beta_slow": 32.0}, ("beta_fast = 1.0", "at least beta_slow = 32")),
        ({"scaling": "longrope", "long_factor": (1.0,) * 3}, ("long_factor", "32 numbers, one a pair", "3 given")),
        ({"mrope_section": (16, 8, 7)}, ("(16, 8, 7)", "sum to rotary_dim/2 = 32", "sum to 31")),
        ({"mrope_section": (-1, 16, 17)}, ("(-1, 16, 17)", "sections from 0", "-1 is below 0")),
        ({"scaling": "dynamic", "d_head": 2}, ("even rotary dim of at least 4", "= 2")),
    ):
        with pytest.raises(SpecError) as caught:
            RopeSpec(**fields)
        assert all(w in str(caught.value) for w in words), caught.value


def test_an_integer_factor_equals_the_float():
    assert RopeSpec(scaling="linear", factor=8, base=10_000) == RopeSpec(scaling="linear", factor=8.0)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"n_heads": 4, "slopes": (0.5, 0.25)}, "slopes"),
        ({"n_heads": 2, "slopes": (0.5, -0.25)}, "slopes"),
        ({"n_heads": 1, "slopes": (65.0,)}, "slopes"),
        ({"n_heads": 0}, "n_heads"),
        ({"n_heads": 257}, "n_heads"),
    ],
)
def test_alibi_refuses(fields, name):
    with pytest.raises(SpecError) as caught:
        AlibiSpec(**fields)
    assert [p.name for p in caught.value.problems] == [name]


@pytest.mark.parametrize("cls", [SinusoidalSpec, LearnedSpec, IntegerSpec])
def test_an_odd_d_model_is_refused(cls):
    with pytest.raises(SpecError, match="in steps of 2"):
        cls(d_model=65)


def test_a_learned_offset_stays_inside_the_table():
    with pytest.raises(SpecError, match="from 0 to 1"):
        LearnedSpec(max_position_embeddings=2, offset=2)
    assert LearnedSpec(max_position_embeddings=514, offset=2).build().defined == 512


def test_replace_validates_and_leaves_the_original():
    spec = RopeSpec(base=500_000.0)
    assert spec.replace(d_head=128) == RopeSpec(base=500_000.0, d_head=128)
    assert spec == RopeSpec(base=500_000.0)
    with pytest.raises(SpecError):
        spec.replace(d_head=7)


def test_with_sizes_takes_what_is_a_field():
    assert RopeSpec().with_sizes(d_model=512, d_head=32, n_heads=3) == RopeSpec(d_head=32)
    assert HybridSpec(layers=(AlibiSpec(), RopeSpec())).with_sizes(d_head=32, n_heads=3) == HybridSpec(
        layers=(AlibiSpec(n_heads=3), RopeSpec(d_head=32))
    )


def test_a_field_has_one_type():
    class Odd(Spec):
        either: int | None = None

    with pytest.raises(TypeError):
        Odd.params()


def test_specs_of_different_schemes_differ():
    made = [c() for c in SCHEMES.values()]
    assert len(set(made)) == len(made)
    assert RopeSpec() != RopeSpec(base=500_000.0)
    assert len({RopeSpec(), RopeSpec(), RopeSpec(base=500_000.0)}) == 2


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**14), 10**14))
def test_number_text_reads_back(x):
    assert float(number_text(x)) == x


@pytest.mark.parametrize(
    ("x", "text"), [(500_000.0, "500000"), (0.25, "0.25"), (8, "8"), (1e20, "1e+20"), (-3.0, "-3"), (1.001, "1.001")]
)
def test_number_text_is_short(x, text):
    assert number_text(x) == text


# ------------------------------------------------------------------ round trips


@schemes
@given(data=st.data())
def test_query_round_trip(cls, data):
    spec = data.draw(specs(cls))
    query = spec.to_query()
    assert all(isinstance(v, str) for v in query.values())
    assert parse_query(query) == (spec, ())


@schemes
@given(data=st.data())
def test_mapping_round_trip(cls, data):
    spec = data.draw(specs(cls))
    mapping = spec.to_mapping()
    assert parse_spec(mapping) == spec
    assert parse_spec(json.loads(json.dumps(mapping))) == spec
    assert hash(parse_spec(mapping)) == hash(spec)


@schemes
@given(data=st.data())
def test_a_query_leaves_defaults_out(cls, data):
    spec = data.draw(specs(cls))
    changed = {p.name for p in cls.params() if getattr(spec, p.name) != getattr(cls(), p.name)}
    assert set(spec.to_query()) == {"scheme"} | changed


@fields
@given(data=st.data())
def test_field_text_round_trip(cls, p, data):
    spec = data.draw(specs(cls))
    assert cls.parse_field(p.name, spec.field_text(p.name)) == getattr(spec, p.name)


@pytest.mark.parametrize(
    ("query", "spec"),
    [
        ({"scheme": "rope", "d_head": "128", "base": "500000"}, RopeSpec(d_head=128, base=500_000.0)),
        ({"scheme": "rope", "base": "5e5", "d_head": "1e2"}, RopeSpec(d_head=100, base=500_000.0)),
        ({"scheme": "rope", "scaling": "linear", "factor": "8"}, RopeSpec(scaling="linear", factor=8.0)),
        ({"base": "20000"}, RopeSpec(base=20_000.0)),
        ({}, RopeSpec()),
        ({"scheme": "alibi", "n_heads": "2", "slopes": "0.5,0.25"}, AlibiSpec(n_heads=2, slopes=(0.5, 0.25))),
        ({"scheme": "alibi", "slopes": ""}, AlibiSpec()),
        ({"scheme": "sinusoidal", "endpoint": "true"}, SinusoidalSpec(endpoint=True)),
        ({"scheme": "sinusoidal", "endpoint": "1"}, SinusoidalSpec(endpoint=True)),
        ({"scheme": "sinusoidal", "endpoint": "False"}, SinusoidalSpec()),
        ({"scheme": "none"}, NoneSpec()),
    ],
)
def test_queries_that_are_read(query, spec):
    assert parse_query(query) == (spec, ())


@pytest.mark.parametrize(
    ("query", "spec", "bad"),
    [
        ({"scheme": "rope", "base": "x", "d_head": "128"}, RopeSpec(d_head=128), {"base"}),
        ({"scheme": "rope", "base": "0.5", "d_head": "7", "layout": "up"}, RopeSpec(), {"base", "d_head", "layout"}),
        ({"scheme": "rope", "base": "nan"}, RopeSpec(), {"base"}),
        ({"scheme": "rope", "base": "inf"}, RopeSpec(), {"base"}),
        ({"scheme": "rope", "d_head": "64.5"}, RopeSpec(), {"d_head"}),
        ({"scheme": "rope", "d_head": "1e400"}, RopeSpec(), {"d_head"}),
        ({"scheme": "rope", "d_head": "9" * 5000}, RopeSpec(), {"d_head"}),
        ({"scheme": "rope", "nonsense": "1", "base": "500000"}, RopeSpec(base=500_000.0), {"nonsense"}),
        ({"scheme": "rope", "factor": "8", "base": "500000"}, RopeSpec(base=500_000.0), {"factor"}),
        ({"scheme": "rpoe", "base": "500000"}, RopeSpec(base=500_000.0), {"scheme"}),
        ({"scheme": "alibi", "base": "500000"}, AlibiSpec(), {"base"}),
        ({"scheme": "alibi", "n_heads": "4", "slopes": "1,2"}, AlibiSpec(n_heads=4), {"slopes"}),
        ({"scheme": "alibi", "n_heads": "2", "slopes": "1,x"}, AlibiSpec(n_heads=2), {"slopes"}),
        ({"scheme": "sinusoidal", "endpoint": "maybe"}, SinusoidalSpec(), {"endpoint"}),
        ({"scheme": "learned", "max_position_embeddings": str(10**12)}, LearnedSpec(), {"max_position_embeddings"}),
        ({"scheme": "hybrid", "layers": "alibi,"}, HybridSpec(layers=(AlibiSpec(),)), set()),
        ({"scheme": "hybrid", "layers": "rope(base=1)"}, HybridSpec(), {"layers: rope.base"}),
    ],
)
def test_a_rejected_field_takes_its_default_and_the_rest_stays(query, spec, bad):
    found, problems = parse_query(query)
    assert found == spec
    assert {p.name for p in problems} == bad
    for p in problems:
        assert p.legal in str(p)


def test_the_default_scheme_can_be_chosen():
    assert parse_query({}, default="alibi") == (AlibiSpec(), ())


@pytest.mark.parametrize("query", [{"self": "1"}, {"scheme": "hybrid", "layers": "rope(self=1)"}])
def test_a_query_named_self_does_not_raise(query):
    assert len(parse_query(query)[1]) == 1


def test_a_name_with_a_colon_costs_no_other_field():
    spec, problems = parse_query({"scheme": "rope", "base": "500000", "utm:source": "mail"})
    assert spec == RopeSpec(base=500_000.0)
    assert [p.name for p in problems] == ["utm:source"]


def test_a_name_that_begins_with_scheme_colon_returns():
    with within(2):
        assert parse_query({"scheme:x": "1"})[0] == RopeSpec()


def test_scheme_is_no_parameter_of_a_layer():
    assert parse_query({"scheme": "hybrid", "layers": "alibi(scheme=rope, base=50), rope"})[1]


NAMES = sorted({p.name for c in SCHEMES.values() for p in c.params()} | {"scheme", "nonsense"})
WORDS = ["", "rope", "alibi*2, rope", "rope(", "*", "nan", "-1", "1e999", "0", "2", "64", "half", "true", ","]
texts = st.sampled_from([*SCHEMES, *WORDS]) | st.text(max_size=30) | st.floats().map(repr) | st.integers().map(str)


@given(st.dictionaries(st.sampled_from(NAMES) | st.text("abc_é ", max_size=10), texts, max_size=8))
def test_parse_query_never_raises(query):
    with within(10):
        spec, problems = parse_query(query)
    assert spec == parse_spec(spec.to_mapping())
    assert spec.scheme == query.get("scheme", "rope") or any(p.name == "scheme" for p in problems)
    known = {p.name for p in spec.params()}
    assert all(name in {p.name for p in problems} for name in query.keys() - known - {"scheme"})
    assert all(len(str(p)) < 300 + len(p.legal) for p in problems)


@given(st.text("()*,=. abcdehilnoprst_0123456789", max_size=60))
def test_any_layers_text_is_read_or_refused(text):
    spec, problems = parse_query({"scheme": "hybrid", "layers": text})
    assert parse_spec(spec.to_mapping()) == spec
    assert problems or HybridSpec.parse_field("layers", text) == spec.layers


@pytest.mark.parametrize("piece", ["1", "9", "nan,", "1,", " ", "(", "é", "\x00"])
@pytest.mark.parametrize("name", ["d_head", "base", "layout", "scheme", "nonsense"])
def test_100_kb_of_text_is_refused_in_bounded_time(name, piece):
    with within(20):
        spec, problems = parse_query({"scheme": "rope"} | {name: (piece * 100_000)[:100_000]})
    assert spec == RopeSpec()
    assert problems[0].name == name
    assert len(str(problems[0])) < 300 + len(problems[0].legal)
    assert len(problems[0].legal) < 500


@pytest.mark.parametrize("piece", ["none,", "rope(", "alibi*", "rope*0,", "alibi(slopes=1,", "rope(base=x),", " "])
def test_100_kb_of_layers_is_refused_in_bounded_time(piece):
    with within(30):
        spec, problems = parse_query({"scheme": "hybrid", "layers": (piece * 100_000)[:100_000]})
    assert spec == HybridSpec()
    assert problems


def test_100_kb_of_slopes_is_refused_in_bounded_time():
    with within(20):
        spec, problems = parse_query({"scheme": "alibi", "slopes": ",".join(["1"] * 50_000)})
    assert (spec, len(problems)) == (AlibiSpec(), 1)


@given(any_spec())
def test_hash_follows_equality(spec):
    assert spec.replace() == spec
    assert hash(spec.replace()) == hash(spec)
