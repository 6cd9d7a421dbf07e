"""The words of a command line. What W&B's macros become is in tests/protein/config/test_wandb_sweep.py."""

import json
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.errors import UsageError
from protein.run.command import CommandSettings, Style, command_line, working_directory
from protein.run.template import check_names, is_off, missing, parse, refuse_shell, unflagged
from protein.types import ParamValue


def filled(text: str, **values: ParamValue) -> list[str]:
    return parse(text, "--command").filled(values, parameters=values, environment={"DATA": "/my data"})


@pytest.mark.parametrize(
    ("text", "on", "off"),
    [
        ("{x?--amp}", ["--amp"], []),
        ("{x?--amp|--no-amp}", ["--amp"], ["--no-amp"]),
        ("{x?|--no-amp}", [], ["--no-amp"]),
        ("{x?--clip {v}}", ["--clip", "a b"], []),
        ("{x? --clip {v} | --plain 'a b' }", ["--clip", "a b"], ["--plain", "a b"]),
        ("'{x?--clip {v}}'", ["--clip a b"], []),
        ("--mode={x?fast|exact}", ["--mode=fast"], ["--mode=exact"]),
        ("run-{x?{v}-{env:DATA}|none}.txt", ["run-a b-/my data.txt"], ["run-none.txt"]),
        ("{x?{{a}}||b|c}", ["{a}|b"], ["c"]),
        ("{x?--a}{x?--b}", ["--a--b"], []),
    ],
)
def test_a_switch_is_there_or_not(text: str, on: list[str], off: list[str]) -> None:
    assert filled(f"p {text} q", x=True, v="a b") == ["p", *on, "q"]
    assert filled(f"p {text} q", x=False, v="a b") == ["p", *off, "q"]


def test_a_line_goes_on_in_the_next_one_as_in_a_shell() -> None:
    assert filled("p \\\n --lr {x} \\\r\n --b'\\\n'\\ c \\\n", x=1) == ["p", "--lr", "1", "--b\\\n c"]


def test_what_counts_as_off() -> None:
    off: list[ParamValue] = [False, 0, 0.0, "", "False", "no", "OFF", "none"]
    on: list[ParamValue] = [True, 1, 0.5, "x", "true", "on", "--amp", "0.5"]
    assert (all(map(is_off, off)), any(map(is_off, on))) == (True, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p --lr 1 {x}", ["p", "--lr", "1"]),  # the choice is no flag this time
        ("p {x} q", ["p", "q"]),
        ("p {x}{x}", ["p"]),
        ("p --name {x}", ["p", "--name", ""]),  # it is the flag's value
        ("p --name= {x}", ["p", "--name="]),
        ("p --name={x} ''", ["p", "--name=", ""]),
    ],
)
def test_an_empty_value_is_no_word_unless_a_flag_waits_for_it(text: str, expected: list[str]) -> None:
    assert filled(text, x="") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p --x {x} --y {y}", ["p", "--y", "2"]),
        ("p --x={x} x={x} {x} 'a {x} b' q", ["p", "q"]),
        ("p -v --pair {y}:{x} q", ["p", "-v", "q"]),
        ("p {x?--x|--no-x} q", ["p", "q"]),
        ("p {x?{x}} {y?--y {x}|--z}", ["p"]),
        ("p {y?{x}|q} {y?--y {y} --x {x}}", ["p", "--y", "2"]),
        ("p --mode=a{x?b|c} --amp {x?yes|no} -v {x?--x} -v {x?|--no-x}", ["p", "-v", "-v"]),
        ("p {*args_no_equals}", ["p", "--y", "2"]),
    ],
)
def test_a_parameter_that_is_not_active_takes_its_words_with_it(text: str, expected: list[str]) -> None:
    assert filled(text, y=2) == expected


def test_a_value_by_its_place_is_told_from_one_behind_a_name() -> None:
    given = parse("p {y} --x {x} --x={x} x={x} {x?{x}} {x} {y}{x} --pair {y} {z}", "--command")
    assert unflagged(given, ("x", "z")) == ["x", "x", "z"]


def test_names_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    template = parse("p {a?{b}|{c}} {env:DATA} {d}", "--command")
    assert (template.names, template.variables) == (("a", "b", "c", "d"), ("DATA",))
    assert missing(template, ["a", "e"]) == ["e"]
    assert missing(parse("p {*args}", "--command"), ["a"]) == []
    monkeypatch.setenv("DATA", "x")
    with pytest.raises(UsageError, match=r"has the placeholder \{DATA\}.*; write \{env:DATA\} for the environment var"):
        check_names(parse("p ${DATA}", "--command"), ["a"], "--command")
    with pytest.raises(UsageError, match=r"has the placeholder \{b\}, but no parameter is called so"):
        check_names(template, ["a", "c", "d"], "--command")


WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None)
@given(WORDS, st.text("{}|?*'\"$ a", max_size=9))
def test_words_and_values_are_never_read_as_anything_else(words: list[str], value: str) -> None:
    """Each word is a literal with its braces doubled, and then the value."""
    text = shlex.join(word.replace("{", "{{").replace("}", "}}") + ".{x}" for word in words)
    assert filled(text, x=value) == [f"{word}.{value}" for word in words]
    assert json.loads(filled("p {*args_json}", x=value)[1]) == {"x": value}
    assert shlex.split(filled("sh -c 'p {*args}'", x=value)[2]) == ["p", f"--x={value}"], "a shell reads it as one word"


def test_what_has_no_words_on_this_machine_is_one_line() -> None:
    one = CommandSettings(text="{x?python} {env:EMPTY}", chdir="{env:EMPTY}", params="placeholders")
    with pytest.raises(UsageError, match="has no words with these values; begin it with a program"):
        command_line(one, {"x": False}, seed=0, directory="d", environment={"EMPTY": ""})
    with pytest.raises(UsageError, match="is empty here; set its environment variable to a folder"):
        working_directory(one, "d", {"EMPTY": ""})
    with pytest.raises(UsageError, match="needs the environment variable EMPTY, which is not set"):
        working_directory(one, "d", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p {", "a single { in '{'; write {{ for a brace"),
        ("p a}b q", "a single } in 'a}b'; write }} for a brace"),
        ("p {}", "an empty placeholder in '{}'; name a parameter"),
        ("p {?--x}", "an empty placeholder in '{?--x}'"),
        ("p {x?}", "the switch in '{x?}' has no words; write it as {x?--flag}"),
        ("p {x?|}", "the switch in '{x?|}' has no words"),
        ("p {x?--a q", "the switch in '{x?--a' is not closed; write it as {x?--flag} or {x?--flag|--no-flag}"),
        ("p {x?a|b|c}", "the switch in '{x?a|b|c}' is not closed"),
        ("p {x?--a {y?--b}}", "'{y?' inside a switch, in '{y?--b}}'; write it behind the switch"),
        ("p {x?{*args}}", "'{*args}' inside a switch"),
        ("p {*arg}", "{*arg} is no form of all parameters; did you mean 'args'?"),
        ("p 'a", "close every quotation"),
        ("p a\0b", "the character NUL"),
    ],
)
def test_a_template_that_cannot_be_is_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text, "--command")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("python prepare.py && python train.py --lr {lr}", "'&&'"),
        ("python train.py --lr {lr} | tee log", "'|'"),
        ("python a.py || python b.py", "'||'"),
        ("python train.py; python test.py", "';'"),
        ("python train.py --lr {lr} > out.txt", "'>'"),
        ("python train.py --lr {lr}>>out.txt", "'>>'"),
        ("python train.py 2>&1", "'2>&1'"),
        ("python train.py < config", "'<'"),
        ("python train.py &", "'&'"),
        ("python train.py --data $HOME/data", "'$HOME'"),
        ('python train.py --data "$HOME/data"', "'$HOME'"),
        ('python train.py --note "it\'s" --data $DATA', "'$DATA'"),
        ("python train.py --lr ${lr}", "'${lr}'"),
        ("python train.py --out $(date)", "'$('"),
        ("python train.py --out `date`", "'`'"),
        ("CUDA_VISIBLE_DEVICES=0 python train.py", "write 'env CUDA_VISIBLE_DEVICES=0 ...'"),
        ("python train.py {x?--a | b} | tee log", "'|'"),
    ],
)
def test_what_only_a_shell_understands_is_refused_with_the_way_to_have_one(text: str, found: str) -> None:
    with pytest.raises(UsageError, match="no shell runs") as caught:
        refuse_shell(text, "--command")
    assert found in str(caught.value) and ("sh -c '...'" in str(caught.value) or "env" in found)


@pytest.mark.parametrize(
    "text",
    [
        "sh -c 'python prepare.py && python train.py --lr {lr} > $OUT'",
        'bash -lc "cd $HOME; python train.py --lr {lr}"',
        "ssh host 'cd $HOME && python train.py'",
        "python train.py --pattern 'a|b' --price \\$5 --end 'acc$' --other acc$",
        "python train.py {amp?--amp|--no-amp} {clip?--clip {clip}|--x {{a||b}}} --data {env:HOME}",
        "env A=1 python train.py --lr={lr} +a.b={lr}",
    ],
)
def test_what_a_program_is_to_get_is_not_taken_for_a_shells(text: str) -> None:
    refuse_shell(text, "--command")


@given(st.lists(st.text(st.sampled_from("ab $&|;<>`'\"\\{}()=*?#~"), max_size=8), min_size=1, max_size=5))
def test_words_that_are_quoted_for_a_shell_are_never_refused(words: list[str]) -> None:
    refuse_shell(shlex.join(["python", *words]).replace("{", "{{").replace("}", "}}"), "--command")


def test_a_command_gets_what_is_active_in_a_trial() -> None:
    names = ("model", "depth", "lr")
    ways: list[tuple[Style, str]] = [
        ("placeholders", " --depth {depth} --lr {lr}"),
        ("flags", ""),
        ("dashes", " {depth?--deep}"),
    ]
    for params, more in ways:
        settings = CommandSettings(text=f"p --model {{model}}{more}", params=params)
        settings.check(names, ("depth",))
        words = command_line(settings, {"model": "svc", "lr": 0.5}, seed=0, directory="d")
        assert words == ["p", "--model", "svc", "--lr", "0.5"]
    settings = CommandSettings(text="p {model} {depth} {lr}", params="placeholders")
    settings.check(names)
    with pytest.raises(
        UsageError, match=r"passes 'depth' by its place alone, .*; write --depth {depth} or depth={depth}"
    ):
        settings.check(names, ("depth",))
    assert filled("p {none} {sizes}", none=None, sizes=[1, {"a": None}]) == ["p", "None", '[1, {"a": null}]']
