"""The command line's words: every value has a flag, a given flag counts, and a mistake is one line."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import docstring_parser
import pytest
from patience import PATIENCE_SECONDS

from protein.cli import main
from protein.cli import parse as parsing
from protein.cli.help import GROUPS, SWEEP_GROUPS
from protein.cli.parse import COMMANDS, parse
from protein.cli.values import field_texts
from protein.config.layers import flag, value_types
from protein.errors import UsageError


def values(*words: str) -> dict[str, Any]:
    return dict(parse(["train", *words]).values)


def test_every_value_of_a_run_has_a_flag() -> None:
    samples = {bool: "True", int: "3", float: "0.25", str: "x"}
    kinds = {name: kind for name, kind in value_types().items() if name != "env.name"}
    words = [word for name, kind in kinds.items() for word in (flag(name), samples.get(kind) or kind.__args__[0])]
    assert set(values(*words)) == set(kinds)
    assert len(kinds) > 30


def test_flags_take_values_as_typed() -> None:
    given = values("--train.learning-rate", "1e-3", "--train.total_timesteps", "5e6", "--train.horizon=1_6")
    assert {**given, **values("--train.ent-coef", "-.5")} == {
        "train.learning_rate": 0.001,
        "train.total_timesteps": 5_000_000,
        "train.horizon": 16,
        "train.ent_coef": -0.5,
    }
    assert isinstance(values("--train.learning-rate", "1")["train.learning_rate"], float)
    assert isinstance(values("--train.total-timesteps", "5e6")["train.total_timesteps"], int)


@pytest.mark.parametrize(("word", "value"), [("False", False), ("false", False), ("True", True), ("true", True)])
def test_a_bool_takes_its_value_in_words(word: str, value: bool) -> None:
    assert values("--train.normalize-advantages", word) == {"train.normalize_advantages": value}
    assert values(f"--train.normalize-advantages={word}") == {"train.normalize_advantages": value}


def test_a_flag_with_the_default_value_counts_as_given() -> None:
    assert values("--train.gamma", "0.99") == {"train.gamma": 0.99}
    assert values() == {}


def test_a_sweep_gives_its_trials_their_seeds() -> None:
    assert parse(["train", "--train.seed", "3"]).values == {"train.seed": 3}
    with pytest.raises(UsageError, match=r"^unknown flag '--train\.seed'"):
        parse(["sweep", "--train.seed", "3"])


MISTAKES = [
    ("swep --env pong", "unknown command 'swep'; did you mean 'sweep'?"),
    ("--halp", "unknown flag '--halp'; did you mean '--help'?"),
    ("sweep --evn pong", "unknown flag '--evn'; did you mean '--env'?"),
    ("sweep --train.lerning-rate 3", "unknown flag '--train.lerning-rate'; did you mean '--train.learning-rate'?"),
    ("sweep --train.lerning_rate=3", "unknown flag '--train.lerning_rate'; did you mean '--train.learning-rate'?"),
    (
        "train --train.vf-clip-coef 0.2",  # of an earlier version; `--train.clip-coef` is something else
        "'--train.vf-clip-coef' is not supported any more: it paid in no environment (docs/options.md); leave it out",
    ),
    ("sweep --zzz", "unknown flag '--zzz'; see protein sweep --help"),
    ("ls", "unknown command 'ls'; did you mean 'status'?"),
    ("remove pong", "unknown command 'remove'; did you mean 'rm'?"),
    ("start", "unknown command 'start'; did you mean 'sweep'?"),
    ("sweep --budget 1h", "unknown flag '--budget'; did you mean '--max-cost'?"),
    ("sweep --lr=0.1", "unknown flag '--lr'; did you mean '--train.learning-rate'?"),
    ("best --lr 0.1", "unknown flag '--lr'; see protein best --help"),
    ("sweep pong", "unexpected argument 'pong'; did you mean '--env pong'?"),
    ("show pong 3", "unexpected argument '3'; did you mean '--trial 3'?"),
    ("show pong extra", "unexpected argument 'extra'; see protein show --help"),
    ("sweep --env", "flag '--env' needs a value; see protein sweep --help"),
    ("sweep --max_cost --env pong", "flag '--max_cost' needs a value; see protein sweep --help"),
    ("train --train.gamma", "flag '--train.gamma' needs a value; see protein train --help"),
    (
        "note pong --trial 3 --note -bad",
        "flag '--note' needs a value; one that begins with a dash is written --note=-bad; see protein note --help",
    ),
    (
        "best --under -o",
        "flag '--under' needs a value; one that begins with a dash is written --under=-o; see protein best --help",
    ),
    ("sweep --train.learning-rate abc", "--train.learning-rate 'abc' is not a number; give a number"),
    ("sweep --train.learning-rate nan", "--train.learning-rate 'nan' is not a number; give a number"),
    ("sweep --train.learning-rate None", "--train.learning-rate 'None' is not a number; give a number"),
    ("sweep --train.horizon 1.5", "--train.horizon '1.5' is not a whole number; give a whole number"),
    ("sweep --train.horizon inf", "--train.horizon 'inf' is not a whole number; give a whole number"),
    ("sweep --train.compile 1", "--train.compile '1' is not True or False; give True or False"),
    ("sweep --train.precision fp23", "--train.precision 'fp23' is not one of its choices; did you mean 'fp32'?"),
    ("sweep --workers two", "--workers 'two' is not a whole number; give a whole number"),
    ("sweep --seed 1.5", "--seed '1.5' is not a whole number; give a whole number"),
    ("eval --episodes many", "--episodes 'many' is not a whole number; give a whole number"),
    ("try pong --lr", "flag '--lr' needs a value, as in --lr 0.001"),
    ("try pong --lr 1 --lr 2", "flag '--lr' is given twice; for several configs use --file FILE"),
    ("try pong --file", "flag '--file' needs a value; see protein try --help"),
    ("show --trial x", "--trial 'x' is not a whole number; give a whole number"),
]


def test_other_words_name_commands_and_flags_that_exist() -> None:
    assert set(parsing.OTHER_COMMANDS.values()) <= set(COMMANDS) and not set(parsing.OTHER_COMMANDS) & set(COMMANDS)
    known = {flag(name) for name in value_types()}
    fields = [field.name for kind, _ in COMMANDS.values() for field in dataclasses.fields(kind)]
    known |= {f"--{name}".replace("_", "-") for name in fields}
    assert set(parsing.OTHER_FLAGS.values()) <= known


@pytest.mark.parametrize(
    ("given", "meant"), [("help", "--help"), ("help sweep", "sweep --help"), ("version", "--version")]
)
def test_help_and_version_need_no_dashes(given: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for line in (given, meant):
        with pytest.raises(SystemExit) as stop:
            parse(line.split())
        assert not stop.value.code
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != ""


@pytest.mark.parametrize(("line", "message"), MISTAKES)
def test_a_mistake_is_one_line_on_stderr(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.err == f"error: {message}\n"
    assert printed.out == ""


WORDS = {
    "sweep",
    "sweeps",
    "what",
    "place",
    "names",
    "of",
    "environment",
    "from_",
    "tool",
    "source",
    "action",
    "paths",
    "old",
    "new",
}  # no flags


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_each_of_its_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse([name, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "(default: None)" not in text
    for field in dataclasses.fields(COMMANDS[name][0]):
        if (name, field.name) == ("store", "url"):  # a word, not a flag
            continue
        if field.name not in WORDS:
            assert f"--{field.name.replace('_', '-')}" in text


def test_help_shows_the_values_of_the_environment_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in (["sweep", "--help"], ["sweep", "--env", "pong", "--help"], ["train", "--env", "pong", "--help"]):
        with pytest.raises(SystemExit):
            parse(words)
        shown.append(" ".join(capsys.readouterr().out.replace("│", " ").split()))
    assert "--train.gamma FLOAT Discount factor per decision. (default: 0.99" in shown[0]
    assert "swept from" in shown[1]
    assert "swept from" not in shown[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_the_terminal_and_breaks_no_number(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        parse([name, "--help"])
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if len(line) > 80] == []
    joined = " ".join(text.replace("│", " ").split())
    assert re.findall(r"\d, \d{3}\b|reward, steps", joined) == [], "tyro breaks lines at commas"
    words = (COMMANDS[name][0].__doc__ or "").split()
    assert " ".join(words) in joined, "all of the intro is there"


def test_help_without_boxes_keeps_its_lines() -> None:
    done = run("data", "--help", PYTHONIOENCODING="ascii", COLUMNS="80")
    assert re.search(r"^ options *\n -{78} *\n  -h, --help     show this help", done.stdout, re.MULTILINE), done.stdout
    assert "\nof its object. show looks at such a folder" in done.stdout, "the intro is wrapped"


def test_without_a_word_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse([])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(f" {name} " in text for name in COMMANDS)


def run(*words: str, module: str = "protein", **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, **settings},
        check=False,
    )


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from protein.cli import main\n"
        "for words in (['--help'], ['sweep', '--env', 'pong', '--help'], ['show', '--help']):\n"
        "    try:\n"
        "        main(words)\n"
        "    except SystemExit as stop:\n"
        "        assert stop.code == 0\n"
        "heavy = {'torch', 'gpytorch', 'scipy', 'sqlalchemy', 'matplotlib', 'numpy', 'alembic', 'psutil'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert done.stderr == "[]\n"
    assert "--train.learning-rate" in done.stdout
    program = "import sys; from protein.cli.parse import parse; print(sorted({'tomllib', 'email'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert done.stdout == "[]\n"


def test_the_module_is_the_program() -> None:
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("protein 0.")
    done = run("swep")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown command 'swep'; did you mean 'sweep'?\n"


def test_an_output_that_cannot_show_a_character_gets_another() -> None:
    done = run("--help", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "sweep" in done.stdout


def test_the_overview_names_every_command_once_in_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS)
    with pytest.raises(SystemExit):
        parse(["-h"])
    text = capsys.readouterr().out
    assert all(f"{title}:\n  {names[0]} " in text for title, names in GROUPS.items())
    assert max(len(line) for line in text.splitlines()) <= 100


def test_the_flags_of_a_sweep_are_listed_in_groups_and_parsed_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["sweep", "--help"])
    text = capsys.readouterr().out
    for title, names in SWEEP_GROUPS.items():
        box = text.partition(f" {title} options ")[2].partition(f" {title} options ")[0].partition(" options ")[0]
        flags = {word for word in box.split() if word.startswith("--")}
        assert flags >= {f"--{name.replace('_', '-')}" for name in names}
    assert text.count("--max-cost ") == 1
    assert "Budget: the training time of all trials together" in text
    assert parse(["sweep", "--max-cost", "5s"]).arguments.max_cost == "5s"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_texts_of_flags_are_those_that_another_reader_of_docstrings_finds(command: str) -> None:
    kind = COMMANDS[command][0]
    bases = reversed(kind.__mro__[:-1])
    found = [one for base in bases for one in docstring_parser.parse_from_object(base).params]
    assert field_texts(kind) == {one.arg_name: " ".join((one.description or "").split()) for one in found}


@pytest.mark.parametrize("words", [["status"], ["best", "pong"], ["pareto", "pong"], ["show", "pong"]])
def test_a_command_that_reads_loads_nothing_that_takes_long_to_be_parsed(words: list[str]) -> None:
    code = "import sys; from protein.cli.parse import parse; parse(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert {"typeguard", "unittest.mock", "numpy", "sqlalchemy"}.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("command", ["sweep", "train", "export", "status"])
def test_help_explains_every_flag_and_loads_nothing_that_takes_long(command: str) -> None:
    code = (
        "import sys; from protein.cli.parse import parse\ntry: parse(sys.argv[1:])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    words = [sys.executable, "-c", code, command, "--help"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "COLUMNS": "1000"}, check=True)
    assert {"typeguard", "unittest.mock", "torch"}.isdisjoint(done.stderr.split())
    texts, shown = field_texts(COMMANDS[command][0]), " ".join(done.stdout.split())
    assert set(texts) == {field.name for field in dataclasses.fields(COMMANDS[command][0])}
    assert [name for name, text in texts.items() if text not in shown] == []


def test_arguments_are_read_as_toml_or_as_texts() -> None:
    words = [
        "train",
        "--env",
        "gym:LunarLander-v3",
        "--env.args.gravity",
        "-9.5",
        "--env.args.enable-wind=true",
        "--train.seed",
        "3",
    ]
    command = parse([*words, "--env.args.sizes", "[1, 2]", "--env.args.mode", "hard"])
    assert command.values == {
        "train.seed": 3,
        "env.args.gravity": -9.5,
        "env.args.enable_wind": True,
        "env.args.sizes": [1, 2],
        "env.args.mode": "hard",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("True", True), ("False", False), ("2020-01-01", "2020-01-01"), ("2020-01-01T10:00:00", "2020-01-01T10:00:00")],
)
def test_what_python_and_people_write_is_read_as_they_mean_it(text: str, value: object) -> None:
    assert parse(["train", "--env", "gym:A-v0", "--env.args.one", text]).values == {"env.args.one": value}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--env.args.gravity", "flag '--env.args.gravity' needs a value"),
        ("--env.args.=3", "with the name of an argument"),
    ],
)
def test_a_mistake_is_told_in_one_line(word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(["sweep", "--env", "gym:LunarLander-v3", word])
