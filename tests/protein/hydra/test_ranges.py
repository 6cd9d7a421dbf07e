"""Hydra's overrides as ranges: what is searched, and that every value comes back as it was meant."""

from typing import Any

import pytest

pytest.importorskip("hydra")

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra_calls import PROGRAMS
from hypothesis import example, given
from hypothesis import strategies as st

from protein.errors import UsageError
from protein.hydra.ranges import Asked, read, word
from protein.run.template import parse

LOADER = ConfigLoaderImpl(create_config_search_path(str(PROGRAMS / "yaml" / "conf")))
PARSER = OverridesParser.create()


def asked(*overrides: str, **params: Any) -> Asked:
    return read(params, list(overrides), LOADER)


@pytest.mark.parametrize(
    ("override", "table"),
    [
        ("lr=interval(1e-5,1e-1)", {"min": 1e-5, "max": 0.1}),
        ("lr=tag(log, interval(1e-5, 1e-1))", {"min": 1e-5, "max": 0.1, "scale": "log"}),
        ("n=int(interval(1, 8))", {"min": 1, "max": 8}),
        ("n=tag(log, int(interval(1, 8)))", {"min": 1, "max": 8, "scale": "log"}),
        ("p=tag(logit, interval(0.1, 0.9))", {"min": 0.1, "max": 0.9, "scale": "logit"}),
        ("n=range(1,10)", {"min": 1, "max": 9}),
        ("n=range(16, 129, 16)", {"min": 16, "max": 128, "step": 16}),
        ("n=range(10, 0, -3)", {"min": 1, "max": 10, "step": 3}),
        ("n=shuffle(range(3))", {"min": 0, "max": 2}),
        ("x=range(0.0, 0.9, 0.3)", {"min": 0.0, "max": 0.6, "step": 0.3}),
        ("x=range(0, 1, 0.25)", {"min": 0.0, "max": 0.75, "step": 0.25}),
        ("m=small,large", {"choices": ["small", "large"]}),
        ("m=1,2.5,true,null", {"choices": [1, 2.5, True, "null"]}),
        ("m='a b',c", {"choices": ["'a b'", "c"]}),
        ("m=[1,2],[3,{a:b}]", {"choices": ["[1,2]", "[3,{a:b}]"]}),
        ("m=shuffle(c, a, b)", {"choices": ["c", "a", "b"]}),
        ("m=sort(c, a, b)", {"choices": ["a", "b", "c"]}),
        ("m=str(choice(1, 2))", {"choices": ["1", "2"]}),
        ("model=glob(*)", {"choices": ["large", "small"]}),
    ],
)
def test_an_override_is_a_range(override: str, table: dict[str, Any]) -> None:
    key = override.partition("=")[0]
    found = asked(override)
    assert found.tables == {key: table}
    assert [(type(one), one) for one in found.tables[key].get("choices", ())] == [
        (type(one), one) for one in table.get("choices", ())
    ]


@pytest.mark.parametrize(
    ("given", "table"),
    [
        ("tag(log, interval(1, 2))", {"min": 1.0, "max": 2.0, "scale": "log"}),
        ({"min": 1, "max": 2, "when": "model == 'large'"}, {"min": 1, "max": 2, "when": "model == 'large'"}),
        ({"type": "range", "bounds": [1, 8]}, {"min": 1, "max": 8}),
        (
            {"type": "range", "bounds": [1, 8], "log_scale": True, "value_type": "float"},
            {"min": 1.0, "max": 8.0, "scale": "log"},
        ),
        ({"type": "float", "low": 1, "high": 8, "log": False}, {"low": 1.0, "high": 8.0}),
        ({"type": "choice", "values": ["a", "true", None, [1]]}, {"choices": ["a", "'true'", "null", "[1]"]}),
    ],
)
def test_a_table_of_the_config_is_a_range(given: Any, table: dict[str, Any]) -> None:
    assert asked(**{"x.y": given}).tables == {"x.y": table}
    assert asked(x={"y": given}).tables == {"x.y": table}


def test_the_command_line_comes_before_the_config_and_one_value_is_fixed() -> None:
    params = {"lr": "interval(0, 1)", "+seed": 3, "text": "a"}
    found = asked("lr=0.5", "++text=b,c", "one=range(1)", "~gone", **params)
    assert found.tables == {"text": {"choices": ["b", "c"]}}
    assert found.fixed == ("lr=0.5", "+seed=3", "one=0", "~gone")
    assert found.keys == {"text": "++text"}


def test_keys_of_hydra_have_names_in_the_sweep() -> None:
    found = asked("+model/encoder@net.enc=a,b", "layers.0.size=1,2", "x-y=1,2")
    assert list(found.tables) == ["model_encoder_net.enc", "layers._0.size", "x_y"]
    params = dict.fromkeys(found.tables, "a")
    assert found.overrides(params) == ["+model/encoder@net.enc=a", "layers.0.size=a", "x-y=a"]
    with pytest.raises(UsageError, match="x-y and x_y would both be called x_y"):
        asked("x-y=1,2", "x_y=1,2")


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("x=tag(lgo, interval(1,2))", "tag 'lgo' cannot be used.*did you mean 'log'"),
        ("x=tag(log, pow2, interval(1,2))", "tag 'log and pow2'"),
        ("x=tag(log, choice(1,2))", "choices have no scale"),
        ("x=interval(0, 1),2", "a range cannot be one of several choices"),
        ("x=range(3, 1)", "holds no value"),
        ("x=range(1, 3, 0)", "holds no value"),
        ("model=glob(none*)", "no such value"),
    ],
)
def test_what_cannot_be_searched_is_refused(override: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        asked(override)
    assert override in str(refused.value) and "\n" not in str(refused.value)


def test_what_hydra_cannot_read_in_the_config_is_one_line() -> None:
    for value in ("intervall(1, 2)", "interval(1", "bool(interval(0, 1))"):
        with pytest.raises(UsageError, match=r"hydra\.sweeper\.params: ") as refused:
            asked(lr=value)
        assert "\n" not in str(refused.value)


TEXTS = st.text(st.characters(exclude_categories=["C"]), max_size=8)
KEYS = st.sampled_from(["a", "b"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=4,
)


@given(VALUES, VALUES)
@example(None, "A²")
def test_every_value_reaches_the_program(searched: Any, fixed: Any) -> None:
    """Through the words of the sweep's command line, and then by Hydra's own grammar."""
    found = Asked(tables={"a.b": {}}, keys={"a.b": "+a.b"}, fixed=(f"c={word(fixed)}",))
    words = parse(" ".join(["python", *found.words()]), "--command").filled({"a.b": word(searched)})
    assert len(words) == 3
    parsed = [PARSER.parse_override(one) for one in words[1:]]
    for override, value in zip(parsed, (fixed, searched), strict=True):
        assert not override.is_sweep_override()
        assert override.value() == value and type(override.value()) is type(value)
