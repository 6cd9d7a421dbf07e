"""What each mistake in a configuration file is answered with."""

from pathlib import Path

import pytest
from config_files import config_folder, load_with  # noqa: F401 (a fixture)

from protein.config.layers import read_config_file
from protein.config.resolve import load, make_space
from protein.errors import ConfigError, SpaceError

MISTAKES = [
    ("[train]\nlearning_rat = 0.01", "own.toml: unknown key 'train.learning_rat'; did you mean 'train.learning_rate'?"),
    ("[trai]\nx = 1", "own.toml: unknown section 'trai'; did you mean 'train'?"),
    ("train = 3", "own.toml: 'train' must be a section, [train], not 3"),
    ("[train]\ngamma = true", "own.toml: train.gamma must be a number, got bool True"),
    ('[train]\ncompile = "false"', "own.toml: train.compile must be true or false, got str 'false'"),
    ("[train]\ngamma = 1.5", "own.toml: train.gamma must be between 0 and 1, got 1.5"),
    (
        "[train]\ngamma = { minimum = 0.1 }",
        "own.toml: unknown key 'minimum' in the table of 'train.gamma'; did you mean 'min'?",
    ),
    (
        "[train]\nlearning_rate = { min = 0.1 }",
        "own.toml: parameter 'train.learning_rate': min 0.1 is not below max 0.1; widen the range or fix the value",
    ),
    (
        "[train]\nlearning_rate = { min = 0.5 }",
        "own.toml: parameter 'train.learning_rate': min 0.5 is not below max 0.1; widen the range or fix the value",
    ),
    (
        "[train]\nlearning_rate = { min = 0 }",
        "own.toml: parameter 'train.learning_rate': min 0 of a log range must be above 0; raise it or use linear",
    ),
    (
        "[train]\ngamma = { max = 1 }",
        "own.toml: parameter 'train.gamma': a logit range must lie inside (0, 1), got [0.9, 1.0]; shrink it",
    ),
    (
        "[train]\nhorizon = { min = 3, max = 64, scale = 'pow2' }",
        "own.toml: parameter 'train.horizon': bound 3 of a pow2 range is not a power of two",
    ),
    (
        "[train]\nbeta1 = { min = 0.8, max = 0.99, scale = 'logg' }",
        "own.toml: parameter 'train.beta1': unknown scale 'logg'; did you mean 'log'?",
    ),
    ("[train]\nhorizon = { max = 64 }", "own.toml: the range of train.horizon has no min; give both min and max"),
    ("[train]\nhorizon = { scale = 'log' }", "own.toml: the range of train.horizon has no min; give both min and max"),
    (
        "[train]\nupdate_epochs = { min = 1.5, max = 3 }",
        "own.toml: parameter 'train.update_epochs': bound 1.5 is not a whole number; give a whole number",
    ),
    ("[train]\nvf_coef = { min = -1, max = 1 }", "own.toml: train.vf_coef must be at least 0 and finite, got -1.0"),
    (
        "[train]\nlr_schedule = { min = 1, max = 2 }",
        "own.toml: train.lr_schedule is not a number, so it has no min and max; give choices = [...]",
    ),
    ("[train]\nlr_schedule = { choices = 'cosine' }", "own.toml: train.lr_schedule: choices = 'cosine' must be a list"),
    (
        "[train]\nlr_schedule = { choices = ['cosine', 'linea'] }",
        "own.toml: train.lr_schedule cannot be 'linea'; did you mean 'linear'?",
    ),
    (
        "[train]\nlr_schedule = { choices = ['linear', 'constant'] }",
        "built-in default: parameter 'train.lr_schedule': value 'cosine' is not one of its choices 'linear',"
        " 'constant' (given in own.toml); change the value or the range",
    ),
    (
        "[train]\ngamma = { choices = [0.9], min = 0.9 }",
        "own.toml: train.gamma gives both choices and min; give either choices or min and max",
    ),
    (
        "[train]\nlearning_rate = { value = 0.5 }",
        "own.toml: parameter 'train.learning_rate': value 0.5 is outside its range [0.0001, 0.1]"
        " (given in default.toml); change the value or the range",
    ),
    ("[sweep]\nworker = 2", "own.toml: unknown key 'sweep.worker'; did you mean 'workers'?"),
    ("[sweep]\nworkers = true", "own.toml: sweep.workers = True must be a whole number"),
    ("[sweep]\nearly_stopping = 1", "own.toml: sweep.early_stopping = 1 must be true or false"),
    ("[sweep]\nworkers = 0", "own.toml: workers = 0 is below the limit of 1; use 1 or more"),
    ("[sweep]\ngpus_per_trial = -2", "own.toml: gpus_per_trial = -2 is below the limit of 1; use 1 or more"),
    ("[sweep]\nseed = -1", "own.toml: seed = -1 is below the limit of 0; use 0 or more"),
    ("[sweep]\nconstraints = 'a < b'", "own.toml: sweep.constraints = 'a < b' must be a list of texts"),
    ("[sweep]\nrequire = 'a < 1'", "own.toml: sweep.require = 'a < 1' must be a list of texts"),
    (
        "[sweep]\nrequire = ['gb 1']",
        "own.toml: sweep.require 'gb 1' is no limit; write a metric's name, one of <=, >=, < and >, and a number,"
        " as in 'memory_gb <= 8'",
    ),
    ("[sweep]\nconstraints = [1]", "own.toml: sweep.constraints = [1] must be a list of texts"),
    (
        "[sweep]\nmax_trial_cost = '3x'",
        "own.toml: sweep.max_trial_cost '3x' is not a duration; write it like 90s, 15m, 2h, 1d or 1h30m",
    ),
    (
        "[sweep]\nmax_trial_memory = '3'",
        "own.toml: sweep.max_trial_memory '3' has no unit; write 3MiB or 3GiB",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_in_a_file_is_one_line_with_file_and_key(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_space(load_with(folder, text))
    assert str(caught.value) == message


@pytest.mark.parametrize(("name", "text"), [("own.toml", "[train]\r\ngamma = 0.5\r\n"), ("own.json", '{"train": {}}')])
def test_a_file_of_an_editor_on_windows_is_read(tmp_path: Path, name: str, text: str) -> None:
    """It begins with a mark of its encoding, and its lines end with two characters."""
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_config_file(tmp_path / name).keys() == {"train"}


def test_unreadable_files_are_named(folder: Path) -> None:
    (folder / "latin.toml").write_bytes(b"[train]\nx = '\xff'\n")
    (folder / "cut.json").write_text('{"train": ')
    (folder / "list.json").write_text("[1]")
    (folder / "deep.json").write_text('{"a":' * 2_000)
    (folder / "deep.toml").write_text("a = " + "[" * 2_000)
    for name, text in {"new.toml": "", "new.json": "", "remark.toml": "# later\n", "none.json": "{}"}.items():
        (folder / name).write_text(text)
    for name, words in {
        "cut.json": "cut.json: not valid JSON: Expecting value",
        "deep.json": "deep.json: not valid JSON: maximum recursion depth",
        "deep.toml": "deep.toml: not valid TOML: ",
        "new.toml": "new.toml: is empty; write sections of values into it",
        "new.json": "new.json: is empty; ",
        "remark.toml": "remark.toml: is empty; ",
        "none.json": "none.json: is empty; ",
        "list.json": "list.json: holds a list; a config file holds sections of values",
        "none.toml": "none.toml: no such config file; check the path",
        ".": ".: cannot be read (Is a directory); check the path and its permissions",
        "latin.toml": "latin.toml: not valid TOML: 'utf-8' codec can't decode byte 0xff",
    }.items():
        with pytest.raises(ConfigError) as caught:
            load("pong", config_file=folder / name, directory=folder)
        assert str(caught.value).startswith(words)
    with pytest.raises(ConfigError, match=r"^own.toml: not valid TOML: .*line 1"):
        load_with(folder, "[train\n")


def test_unusable_constraints_and_cost_parameters_name_their_file(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^own.toml: .*'train.minibatch'; did you mean 'train.minibatch_size'\?$"):
        make_space(load_with(folder, '[sweep]\nconstraints = ["train.minibatch <= env.num_envs"]'))
    with pytest.raises(ConfigError, match=r"^own.toml: cost parameter 'train.steps' is not a parameter"):
        make_space(load_with(folder, '[sweep]\ncost_parameter = "train.steps"'))
    with pytest.raises(ConfigError, match=r"^own.toml: constraint .* cannot be met"):
        make_space(load_with(folder, '[sweep]\nconstraints = ["train.gamma < 0"]'))


def test_a_start_that_violates_a_constraint_is_refused(folder: Path) -> None:
    with pytest.raises(SpaceError) as caught:
        make_space(load_with(folder, "[env]\nnum_envs = 32\n"))
    assert str(caught.value) == (
        "constraint 'train.minibatch_size <= env.num_envs * train.horizon' is violated by env.num_envs = 32,"
        " train.horizon = 64, train.minibatch_size = 8192; change one of them"
    )


def test_a_config_without_a_range_cannot_be_swept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^nothing is swept: no value has a range; give one as \{ value"):
        make_space(load("pong", directory=tmp_path))


def test_a_flag_out_of_range_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^train.learning_rate must be at least 0 and finite, got -1.0$"):
        load("pong", flags={"train.learning_rate": -1.0}, directory=folder)
    with pytest.raises(ConfigError, match=r"^trial 3: unknown key 'train.gone'"):
        load("pong", stored={"train.gone": 1}, stored_source="trial 3", directory=folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[env]\nargs = 3\n", r"mine.toml: 'env.args' must be a section, \[env.args\], not 3"),
        ("[env.args]\ng = { min = 1, max = 2 }\n", "mine.toml: env.args.g has a range and no value to begin with"),
        ("[env.args]\n'a b' = 1\n", "env.args.a b is no argument's name"),
        ("[env.args]\ng = 2020-01-01\n", "env.args.g must be true, false, a number, a string, a list or a table"),
        ("[env.args]\ng = inf\n", "env.args.g must be finite, got inf"),
    ],
)
def test_a_mistake_in_the_arguments_is_told_in_one_line(folder: Path, text: str, message: str) -> None:
    (folder / "mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=message) as raised:
        load("gym:LunarLander-v3", config_file=folder / "mine.toml", directory=folder)
    assert "\n" not in str(raised.value)
