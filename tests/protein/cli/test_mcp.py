"""`protein mcp` by its package's own client, in memory but for one test: what is read, and what is refused."""

import contextlib
import dataclasses
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from commands import Run
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE_SECONDS, wait_until
from planted_sweeps import searched
from sample_trials import fill_store
from store_samples import complete, new_sweep, start, sweep_spec

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.types import Implementation, TextContent

from protein.api import agents, stores
from protein.api.agents import Agents, Allowance, Start
from protein.cli import main
from protein.cli.mcp import CLOSE, NAMED, OPEN, make_server, marked
from protein.errors import StoreUnavailable, UsageError
from protein.ports import Store
from protein.run.lease import owner_of
from protein.space import Categorical, Float, Integer, Space
from protein.types import AgentCall, Measurement, Outcome, Request, Trial, TrialEnd
from protein.view import text

pytestmark = pytest.mark.usefixtures("warm")

SPACE = {"lr": {"min": 0.1, "max": 1.0}}
WRITES: dict[str, dict[str, Any]] = {
    "start_sweep": {"run": "python train.py", "name": "a", "max_cost": "1s", "space": SPACE},
    "try_configs": {"sweep": "pong", "configs": [{"train.learning_rate": 0.001}]},
    "pause_sweep": {"sweep": "pong"},
    "resume_sweep": {"sweep": "pong"},
    "stop_sweep": {"sweep": "pong"},
}


@pytest.fixture
def program(folder: Path) -> Path:
    (folder / "train.py").write_text("print()\n")
    return folder


def allowance(folder: Path, *starts: str, **others: Any) -> Allowance:
    found = Allowance(folder=folder.resolve(), store=None, starts=starts, max_cost_seconds=60.0, **others)
    found.check()
    return found


def asked(allowed: Allowance, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[tuple[bool, str]]:
    """Returns what a client is answered: whether that is an error, and its text."""
    return [(error, texts[0]) for error, texts in asked_all(allowed, calls) if len(texts) == 1]


def asked_all(allowed: Allowance, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[tuple[bool, list[str]]]:
    """Returns the same with all texts."""

    async def session() -> list[tuple[bool, list[str]]]:
        found = []
        async with Client(make_server(allowed), client_info=Implementation(name="my agent", version="1")) as client:
            for tool, arguments in calls:
                answer = await client.call_tool(tool, arguments)
                texts = [content.text for content in answer.content if isinstance(content, TextContent)]
                assert len(texts) == len(answer.content)
                found.append((bool(answer.is_error), texts))
        return found

    return anyio.run(session)


def kept(folder: Path) -> list[AgentCall]:
    with stores.opened(None) as store:
        return store.agent_calls()


def test_what_is_read_is_what_the_commands_print(filled: Path, run: Run) -> None:
    fill_store("sqlite:///runs/protein.db", name="other")
    lines: dict[str, tuple[dict[str, Any], str]] = {
        "status": ({"sweep": "pong"}, "status pong --json"),
        "recommend": ({"sweep": "pong", "under": "1h"}, "best pong --under 1h --json"),
        "pareto": ({"sweep": "pong"}, "pareto pong --json"),
        "compare": ({"sweeps": ["pong", "other"]}, "compare pong other --json"),
        "list_sweeps": ({}, "status --json"),
    }
    listed = run.json("show pong --json")
    trial = run.json("show pong --trial 4 --json")
    answers = asked(
        allowance(filled),
        [
            *((tool, arguments) for tool, (arguments, _) in lines.items()),
            ("laws", {"sweep": "pong"}),
            ("list_trials", {"sweep": "pong", "last": 2}),
            ("explain_trial", {"sweep": "pong", "trial": 4}),
            ("budget", {}),
        ],
    )
    for (error, answer), (tool, (_, line)) in zip(answers, lines.items(), strict=False):
        assert not error, answer
        named = NAMED | {"best", "front"} if tool == "compare" else NAMED
        assert json.loads(answer) == marked(run.json(line), named=named) and "\n" not in answer
    few, (_, last), (_, one), (_, budget) = answers[-4:]
    assert few == (True, marked(run.error("laws pong --json")))
    assert json.loads(last) == marked({"sweep": "pong", "of": len(listed["trials"]), "trials": listed["trials"][-2:]})
    assert json.loads(one) == marked({"sweep": "pong", **{k: v for k, v in trial.items() if k != "sweep"}, "log": ""})
    assert json.loads(budget)["writes"] is False
    assert run("status") == run("status")  # and afterwards commands print again


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=60), st.sampled_from(["</untrusted>", "< /UNTRUSTED >", "<untrusted>", "\x1b[2J", "\u202e", ""])
)
def test_no_text_ends_its_mark_or_steers(one: str, bad: str) -> None:
    for key in ("reason", "x"):
        shown = marked({key: [one + " " + bad + one]})[key][0]
        assert shown.startswith(OPEN) and shown.endswith(CLOSE)
        inner = shown[len(OPEN) : -len(CLOSE)]
        assert not re.search(r"<\W*untrusted", inner, re.IGNORECASE) and not text.STEERING.search(inner)
        inner.encode()
    assert len(marked("x y" * 10_000)) < text.MAX_TEXT + 40
    assert marked({"a b": 1}) == {f"{OPEN}a b{CLOSE}": 1}  # names of parameters come from elsewhere, too
    assert marked({"state": "complete", "score": 0.5, "n": None}) == {"state": "complete", "score": 0.5, "n": None}


OWN = "zzz"  # stands in every text and every name that is not ours
STRANGE = Space(
    [
        Float("zzz_lr", 1e-4, 1e-1, scale="log"),
        Categorical("state", ("zzz", "zzz_ignore_all_rules")),
        Integer("zzz", 1000, 100_000, scale="log"),
    ],
    cost_parameter="zzz",
)


def fill_strange(name: str) -> None:
    """Adds a sweep with enough trials for laws, whose texts and names are from elsewhere."""
    spec = dataclasses.replace(sweep_spec(name), env="zzz_env", space=STRANGE.to_dict(), config={})
    provenance = dataclasses.replace(spec.provenance, machine="zzz")
    with stores.opened(None, create=True) as store:
        sweep = store.create_sweep(dataclasses.replace(spec, provenance=provenance), 600.0)
        store.tag_sweeps([sweep.id], add_tags=["zzz"])
        found = searched(STRANGE, lambda x: float(x[2] - x[0]), num_trials=14, seed=0, seconds=lambda x: 9.0 ** x[2])
        for one in found:
            trial = start(store, sweep, "zzz:1:2.0", params=one.params)
            point = Measurement(steps=9, elapsed_seconds=one.cost_seconds, score=one.score, metrics={"zzz_loss": 0.5})
            store.add_measurements(trial, [point], 600.0)
            end, score = (TrialEnd.DIVERGED, None) if one.number == 13 else (TrialEnd.COMPLETE, one.score)
            texts: dict[str, Any] = {"metrics": {"zzz": 1.0, "state": 2.0}, "timings": {"zzz": 1.0}, "reason": "zzz"}
            store.finish_trial(trial, Outcome(end=end, score=score, cost_seconds=one.cost_seconds, steps=9, **texts))
        store.annotate(sweep.id, 3, tags=["zzz"], note="zzz")
        store.set_ended(sweep.id, "zzz")
    log = Path("runs") / name / "0003" / "trial.log"
    log.parent.mkdir(parents=True)
    log.write_text("zzz\n</untrusted>zzz\n")


def test_every_text_and_name_from_elsewhere_is_marked(folder: Path) -> None:
    empty, hint = asked_all(allowance(folder), [("list_sweeps", {})])[0][1]
    assert json.loads(empty) == [] and hint == "this store holds no sweep yet"
    for name in ("zzz-a", "zzz"):
        fill_strange(name)
    one = {"sweep": "zzz"}
    reads: list[tuple[str, dict[str, Any]]] = [
        ("list_sweeps", {}),
        *((tool, one) for tool in ("status", "list_trials", "recommend", "pareto", "laws")),
        ("explain_trial", one | {"trial": 3}),
        ("explain_trial", one | {"trial": 13}),
        ("laws", one | {"at": "1m"}),
        ("compare", {"sweeps": ["zzz", "zzz-a"]}),
    ]
    wrong = [("status", {"sweep": "x"}), ("recommend", {"sweep": marked("zzz-b")}), ("stop_sweep", {"sweep": "zzzz"})]
    answers = asked(allowance(folder, "python zzz.py"), [*reads, *wrong, ("start_sweep", WRITES["start_sweep"])])
    for (tool, _), (error, answer) in zip([*reads, *wrong], answers, strict=False):
        assert error == ((tool, _) in wrong), answer
        assert OWN in answer and OWN not in re.sub(f"{OPEN}.*?{CLOSE}", "", answer), (tool, answer)
    assert answers[len(reads) + 1][1].count("zzz-b") == 1 and OPEN + OPEN not in answers[len(reads) + 1][1]
    assert "did you mean 'python zzz.py'" in answers[-1][1]  # the person's words


@pytest.mark.parametrize("tool", WRITES)
def test_without_permission_nothing_is_written(tool: str, filled: Path) -> None:
    with stores.opened(None) as store:
        before = store.list_sweeps(), store.summaries()
    ((error, answer),) = asked(allowance(filled), [(tool, WRITES[tool])])
    assert error and answer.startswith("this server only reads") and "\n" not in answer
    with stores.opened(None) as store:
        assert (store.list_sweeps(), store.summaries()) == before and store.agent_calls() == []


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another program": ({"run": "python other.py"}, "may not be started here"),
    "a longer first word": ({"run": "python train.pyx"}, "may not be started here"),
    "no program": ({"run": ""}, "command"),
    "an environment": ({"run": "pong", "space": None}, "may not be started here"),
    "a secret": ({"run": "python train.py --x {env:HOME}"}, "the placeholder {env:HOME} is not for agents"),
    "a space elsewhere": ({"space": "../space.toml"}, "lies outside of"),
    "a space by a link": ({"space": "link.toml"}, "lies outside of"),
    "a space of another tool": ({"space": "sweep.yaml"}, "is no .toml file"),
    "a space with null": ({"space": {"lr": {"min": None}}}, "TOML has no null"),
    "no space": ({"space": None}, "a command needs a space"),
    "a flag as a value": ({"values": {"on-trial": 1.0}}, "values are for an environment or a config"),
    "a name that is a path": ({"name": "../x"}, "name '../x' must be"),
    "a name that is a flag": ({"name": "--store=/x"}, "must be 1 to 64 letters"),
    "above the budget": ({"max_cost": "61s"}, "max_cost 1m1s is above the 1m that are left"),
    "no budget": ({"max_cost": "0s"}, "max_cost '0s' must be above 0"),
    "no duration": ({"max_cost": "-5"}, "max_cost '-5'"),
    "too many trials": ({"max_trials": 11}, "max_trials 11 is above the 10 that are left"),
    "no trial": ({"max_trials": 0}, "max_trials 0 is below the limit of 1"),
    "too many workers": ({"workers": 3}, "workers 3 is above the 2 that are free of 2"),
    "a sweep of a person": ({"name": "pong"}, "'pong' was not started by an agent"),
    "a hook": ({"on_trial": "touch x"}, "start_sweep takes no 'on_trial'"),
    "another method": ({"method": "optuna:tpe"}, "method: "),
    "half a character": ({"space": "\ud800.toml"}, "are no JSON"),
    "too much": ({"space": {"x": {"choices": ["x" * 70_000, "y"]}}}, "longer than 64 KiB"),
}


def test_what_is_not_allowed_or_beyond_the_budget_is_refused_in_one_line_and_starts_nothing(
    filled: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program.parent / "space.toml").write_text("[space]\nlr = { min = 0.1, max = 1.0 }\n")
    (program / "link.toml").symlink_to(program.parent / "space.toml")
    monkeypatch.setattr(Agents, "_spawn", lambda *_: pytest.fail("a process was started"))
    allowed = allowance(program, "python train.py", max_trials=10, workers=2)
    calls = [("start_sweep", WRITES["start_sweep"] | changed) for changed, _ in REFUSED.values()]
    others = [(tool, given) for tool, given in WRITES.items() if tool != "start_sweep"]
    answers = asked(allowed, [*calls, *others])
    for (name, (_, said)), (error, answer) in zip(REFUSED.items(), answers, strict=False):
        assert error and said in answer and "\n" not in answer and len(answer) < 400, (name, answer)
    for error, answer in answers[len(calls) :]:
        assert error and answer == "sweep 'pong' was not started by an agent: agents only read it"
    logged = kept(program)
    assert all(one.outcome.startswith("refused: ") and one.client == "my agent" for one in logged)
    assert {one.tool for one in logged} == set(WRITES) and all(one.max_cost_seconds is None for one in logged)
    assert [one.number for one in logged] == list(range(len(logged)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--allow-start 'python train.py'", "--allow-start and --max-cost go together"),
        ("--max-cost 1h", "--allow-start and --max-cost go together"),
        ("--max-trials 3", "--allow-start and --max-cost go together"),
        ("--allow-start pong --max-cost 0s", "must be above 0"),
        ("--allow-start pong --max-cost 1h --workers 0", "--workers 0 is below"),
        ("--allow-start python --max-cost 1h", "lets agents run any code; name the script"),
        ("--allow-start 'python -c' --max-cost 1h", "lets agents run any code"),
        ("--allow-start ../x.toml --max-cost 1h", "lies outside of"),
        ("--allow-start x.toml --max-cost 1h", "there is no such file"),
        ("--store ../x.db", "the store '"),
        ("--store link/x.db", "the store '"),
        ("--folder nowhere", "there is no such folder"),
    ],
)
def test_an_allowance_that_cannot_be_is_one_line(words: str, said: str, folder: Path, run: Run) -> None:
    (folder / "link").symlink_to(folder.parent)
    assert said in run.error(f"mcp {words}")


def test_without_its_package_the_command_says_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["mcp"]) == 2
    *_, said = capsys.readouterr().err.splitlines()
    assert said.startswith("error: protein mcp needs mcp, which cannot be imported") and "protein-sweep[mcp]" in said


@pytest.mark.parametrize(
    ("allowed", "asked", "kind"),
    [
        ("python train.py x.toml", "python train.py x.toml --more", "command"),
        ("python train.py", "python train.py x.toml", "command"),
        ("x.toml", "./x.toml", "config"),
        ("my configs/x.toml", "my configs/../my configs/x.toml", "config"),
    ],
)
def test_a_command_line_that_ends_with_a_config_file_is_a_command(
    allowed: str, asked: str, kind: str, program: Path
) -> None:
    (program / "my configs").mkdir()
    for name in ("x.toml", "my configs/x.toml"):
        (program / name).write_text("")
    server = Agents(allowance(program, allowed))
    words = server._words(Start(run=asked, name="a", max_cost_seconds=1.0, space=SPACE if kind == "command" else None))
    assert words[0] == f"--{kind}={asked}" and ("--clock-counts" in words) == (kind == "command")
    with pytest.raises(UsageError, match="may not be started here"):
        server._words(Start(run="python other.py x.toml", name="a", max_cost_seconds=1.0, space=SPACE))


class Started:
    """A process of a test that lives until it is told: this one."""

    pid = os.getpid()
    code: int | None = None

    def poll(self) -> int | None:
        return self.code


class Ended(Started):
    """One that has refused to sweep."""

    code = 2


MOST: dict[str, Any] = {"max_trials": 40, "workers": 3}  # beside 60 seconds


class Killed(BaseException):
    """Ends a server as kill -9 does: nothing of its call is written any more."""


@dataclasses.dataclass
class Given:
    """What a sweep has of the budget: what it was given while its process lives, and else what it has spent."""

    asked: Start
    process: "subprocess.Popen[bytes] | None"
    spent: float = 0.0
    trials: int = 0
    young: bool = False  # its server was killed as it began: for a while nobody can tell that it does not run

    def lives(self) -> bool:
        return self.process is not None or self.young

    def seconds(self) -> float:
        return max(self.asked.max_cost_seconds, self.spent) if self.lives() else self.spent

    def most(self) -> int:
        return max(self.asked.max_trials or 0, self.trials) if self.lives() else self.trials


class Budget:
    """Two servers on one store, sweeps whose processes only sleep, and a plain model of what was given away."""

    def __init__(self, program: Path, store: Store, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.draw, self.store, self.program = random.Random(seed), store, program
        self.given, self.removed = dict[str, Given](), list[Given]()
        self.unseen, self.trials = dict[str, subprocess.Popen[bytes]](), dict[str, Trial]()
        self.processes = [self.process(), self.process()]
        self.at, self.mode, self.refused, self.granted, self.overtaken = 0, "", 0, 0, 0
        grant = Agents._grant

        def granted(server: Agents, asked: Start, others: Any, call: AgentCall) -> AgentCall:
            found = grant(server, asked, others, call)
            if self.mode == "overtaken":  # by the other server, after both have seen the same calls
                at, self.overtaken = self.at, self.overtaken + 1
                self.start(1 - at, "")
                self.at = at
            return found

        monkeypatch.setattr(agents, "START_SECONDS", 1e9)  # a call grows old when the test says so
        monkeypatch.setattr(agents, "current_owner", lambda: owner_of(self.processes[self.at].pid))
        monkeypatch.setattr(Agents, "_grant", granted)
        monkeypatch.setattr(Agents, "_spawn", lambda _, words, log: self.spawn(words))

    def process(self, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(words or ("sleep", "1000"))

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        process.kill()
        process.wait()

    def spawn(self, words: Sequence[str]) -> "subprocess.Popen[bytes]":
        name = next(word for word in words if word.startswith("--name=")).removeprefix("--name=")
        if self.mode == "no process":
            raise OSError(12, "no memory")
        if self.mode == "no sweep":
            return self.process("false")
        process = self.unseen[name] = self.last = self.process()
        if self.mode != "killed unseen":
            self.appear(name)
        if self.mode.startswith("killed"):
            raise Killed
        return process

    def appear(self, name: str) -> None:
        """Lets a process store its sweep and begin a trial."""
        process = self.unseen.pop(name)
        sweep = self.store.find_sweep(name) or self.store.create_sweep(sweep_spec(name), None)
        self.store.set_ended(sweep.id, "")
        self.trials[name] = start(self.store, sweep, owner=owner_of(process.pid))

    def fits(self, asked: Start) -> bool:
        others = [one for name, one in self.given.items() if name != asked.name]
        same, live = self.given.get(asked.name), [one for one in others if one.lives()]
        return (
            (same is None or not same.lives())
            and sum(one.seconds() for one in others + self.removed) + asked.max_cost_seconds <= 60.0
            and sum(one.most() for one in others + self.removed) + (asked.max_trials or 0) <= 40
            and sum(one.asked.workers for one in live) + asked.workers <= 3
        )

    def start(self, at: int, mode: str) -> None:
        """Asks a server for a sweep. It gets one that fits, and no other."""
        self.at, self.mode, draw = at, mode, self.draw
        asked = Start(
            run="python train.py",
            name=draw.choice("abcdef"),
            max_cost_seconds=draw.uniform(1.0, 40.0),
            max_trials=draw.randint(1, 20),
            workers=draw.choice((1, 1, 2)),
            space=SPACE,
        )
        before, killed = self.given.get(asked.name) or Given(asked, None), mode.startswith("killed")
        try:
            Agents(allowance(self.program, "python train.py", **MOST)).start(asked, "an agent")
        except UsageError as error:
            self.refused += 1
            assert mode.startswith("no ") or not self.fits(asked), error
            return
        except Killed:
            self.restart(at)
        assert self.fits(asked), asked
        self.granted += 1
        self.given[asked.name] = dataclasses.replace(before, asked=asked, process=self.last, young=killed)

    def restart(self, at: int) -> None:
        self.kill(self.processes[at])
        self.processes[at] = self.process()

    def end(self, name: str, *, in_order: bool) -> None:
        one = self.given[name]
        if name in self.unseen:
            self.appear(name)
        assert one.process is not None
        trial, cost = self.trials[name], self.draw.uniform(0.0, max(one.asked.max_cost_seconds - one.spent, 0.0))
        if in_order:
            self.store.finish_trial(trial, dataclasses.replace(complete(), cost_seconds=cost))
            self.store.set_ended(trial.sweep_id, "done")
            one.spent += cost
        self.kill(one.process)
        one.process, one.trials = None, one.trials + 1

    def grow_old(self) -> None:
        for name in list(self.unseen):
            self.appear(name)
        for one in self.given.values():
            one.young = False
        with contextlib.closing(sqlite3.connect("runs/protein.db")) as database, database:
            database.execute("UPDATE agent_calls SET made_at = '1980-01-01 00:00:00.000000'")
            database.execute("UPDATE sweeps SET created_at = '1980-01-01 00:00:01.000000'")

    def remove(self, name: str) -> None:
        """Lets a person remove a sweep: it counts with all that it was given from now on."""
        self.removed.append(dataclasses.replace(self.given.pop(name), spent=0.0, trials=0, young=True))
        with stores.opened_whole(None) as store:
            store.remove_sweep(stores.find(store, name).id)

    def step(self) -> None:
        live = [name for name, one in self.given.items() if one.process is not None]
        rest = [name for name, one in self.given.items() if not one.lives() and one.spent > 20.0]
        what = self.draw.random()
        if live and what < 0.3:
            self.end(self.draw.choice(live), in_order=self.draw.random() < 0.7)
        elif what < 0.4:
            self.restart(self.draw.randrange(2))
        elif what < 0.5:
            self.grow_old()
        elif rest and what < 0.55:
            self.remove(self.draw.choice(rest))
        else:
            modes = ("", "", "overtaken", "no process", "no sweep", "killed", "killed unseen")
            self.start(self.draw.randrange(2), self.draw.choice(modes))
        with stores.opened(None) as store:
            now = agents.used(store, store.agent_calls())
        assert now.seconds <= 60.0 and now.trials <= 40 and now.workers <= 3
        assert now.seconds == pytest.approx(sum(one.seconds() for one in [*self.given.values(), *self.removed]))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_no_order_of_calls_restarts_and_ends_exceeds_the_budget(
    seed: int, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers, of which either may be overtaken or killed while it starts a sweep, against a plain model."""
    with stores.opened(None, create=True) as store:
        new_sweep(store)  # a person's
        budget = Budget(program, store, seed, monkeypatch)
        try:
            for _ in range(40 if seed else 25):
                budget.step()
        finally:
            for process in filter(None, [*budget.processes, *(one.process for one in budget.given.values())]):
                budget.kill(process)
    assert budget.refused > 3 and budget.granted > 3


def test_a_start_whose_store_fails_or_that_another_server_overtakes_takes_its_budget(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is full; free some space")

    monkeypatch.setattr(Agents, "_spawn", lambda *_: Started())
    monkeypatch.setattr(agents, "_begun", fail)
    server, grant = Agents(allowance(program, "python train.py", workers=3)), Agents._grant
    asked = Start(run="python train.py", name="a", max_cost_seconds=25.0, space=SPACE)
    with stores.opened(None, create=True) as store:
        new_sweep(store)  # a store without a sweep would be left behind by nobody
    with pytest.raises(StoreUnavailable):
        server.start(asked, "an agent")
    assert server.budget()["used_seconds"] == 25.0  # its process runs, as far as anybody knows

    def overtaken(self: Agents, *given: Any) -> AgentCall:
        found = grant(self, *given)
        monkeypatch.setattr(Agents, "_grant", grant)
        with pytest.raises(StoreUnavailable):
            server.start(dataclasses.replace(asked, name="b"), "another agent")
        return found

    monkeypatch.setattr(Agents, "_grant", overtaken)
    with pytest.raises(UsageError, match="max_cost 20s is above the 10s that are left"):
        server.start(dataclasses.replace(asked, name="c", max_cost_seconds=20.0), "an agent")
    assert [call.sweep for call in kept(program)] == ["a", "b", "c"]
    monkeypatch.setattr(Agents, "_spawn", lambda *_: fail_to_start())
    with pytest.raises(UsageError, match="the sweep cannot be started: no memory"):
        server.start(dataclasses.replace(asked, name="d", max_cost_seconds=10.0), "an agent")
    monkeypatch.setattr(Agents, "_spawn", lambda *_: Ended())
    monkeypatch.setattr(agents, "_begun", lambda *_, **__: None)
    with pytest.raises(UsageError, match="the sweep did not start"):
        server.start(dataclasses.replace(asked, name="e", max_cost_seconds=10.0), "an agent")
    (program / "space.toml").write_text("")
    logged = Agents._logged

    @contextlib.contextmanager
    def changed(*words: Any, **how: Any) -> Iterator[Any]:
        with logged(*words, **how) as found:
            (program / "space.toml").unlink()
            (program / "space.toml").symlink_to("/etc/passwd")
            yield found

    monkeypatch.setattr(Agents, "_logged", changed)
    with pytest.raises(UsageError, match=r"cannot be started: space .* lies outside"):
        server.start(dataclasses.replace(asked, name="f", max_cost_seconds=10.0, space="space.toml"), "an agent")
    assert server.budget()["used_seconds"] == 50.0
    with stores.opened(None) as store:
        for name in "de":  # a person's sweeps under names that agents have tried
            store.create_sweep(sweep_spec(name), None)
            with pytest.raises(UsageError, match="was not started by an agent"):
                server.request(name, Request.STOP, "stop_sweep", "an agent")


@pytest.mark.parametrize("whose", ["a person's", "its own"])
def test_a_start_that_fails_takes_a_sweep_of_its_name_only_if_it_has_run_a_trial_of_it(
    whose: str, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stores.opened(None, create=True) as store:

        def spawn(*_: object) -> "subprocess.Popen[bytes]":
            process = subprocess.Popen("false")
            owner = owner_of(process.pid if whose == "its own" else os.getpid())
            trial = start(store, store.create_sweep(sweep_spec("a"), None), owner=owner)
            store.finish_trial(trial, complete(5.0))
            store.set_ended(trial.sweep_id, "no trial has had a score")
            return process

        monkeypatch.setattr(Agents, "_spawn", spawn)
        server = Agents(allowance(program, "python train.py"))
        asked = Start(run="python train.py", name="a", max_cost_seconds=25.0, space=SPACE)
        if whose == "its own":
            assert server.start(asked, "an agent")["state"] == "ended"
            assert server.budget()["used_seconds"] == 5.0
            call = dataclasses.replace(kept(program)[0], owner="another-machine:1:2.0")
            assert agents.used(store, [call]).seconds == 5.0, "its end is known, though its process is not seen"
            return
        with pytest.raises(UsageError, match="the sweep did not start"):
            server.start(asked, "an agent")
        with pytest.raises(UsageError, match="was not started by an agent"):
            server.request("a", Request.STOP, "stop_sweep", "an agent")
        assert server.budget()["used_seconds"] == 0.0


def fail_to_start() -> None:
    raise OSError(12, "no memory")


def test_a_module_in_the_folder_does_not_stand_for_ours(program: Path) -> None:
    for name in ("protein", "json"):
        (program / f"{name}.py").write_text("raise SystemExit(7)\n")
    log = program / "log"
    assert Agents(allowance(program, "python train.py"))._spawn(["--help"], log).wait(PATIENCE_SECONDS) == 0
    assert "--max-trial-cost" in log.read_text()


def test_a_sweep_that_was_removed_has_spent_what_it_was_given(program: Path) -> None:
    with stores.opened(None, create=True) as store:
        sweep = new_sweep(store)
        call = Agents(allowance(program, "python train.py"))._call("c", "start_sweep", "s", {})
        store.add_agent_call(dataclasses.replace(call, owner="", sweep_id=sweep.id + 7, max_cost_seconds=50.0))
        assert agents.used(store, store.agent_calls()).seconds == 50.0
    ((error, answer),) = asked(
        allowance(program, "python train.py"), [("start_sweep", WRITES["start_sweep"] | {"max_cost": "11s"})]
    )
    assert error and "above the 10s that are left" in answer


def test_configs_and_requests_reach_a_sweep_that_an_agent_has_started_and_show_who_asked(
    filled: Path, run: Run
) -> None:
    with stores.opened(None) as store:
        sweep = stores.find(store, "pong")
        call = Agents(allowance(filled, "pong"))._call("my agent", "start_sweep", "pong", {})
        total = store.summaries([sweep.id])[sweep.id].total
        limits: dict[str, Any] = {"max_cost_seconds": 9.0, "max_trials": total + 1}
        store.add_agent_call(dataclasses.replace(call, sweep_id=sweep.id, **limits, outcome="started"))
    name = next(iter(run.json("best pong --json")["params"]))
    value = run.json("best pong --json")["params"][name]
    config = {name: value * 0.99 if isinstance(value, float) else value}
    (first, tried), (second, more), (third, said), *_ = asked(
        allowance(filled, "pong"),
        [
            ("try_configs", {"sweep": "pong", "configs": [config]}),
            ("try_configs", {"sweep": "pong", "configs": [{name: value}]}),
            ("pause_sweep", {"sweep": "pong"}),
        ],
    )
    assert not first and json.loads(tried)["trials"] == [total], tried
    assert second and more.startswith(f"1 config, and 0 trials of the {total + 1} of sweep 'pong' are left")
    assert not third and "is paused" in said
    shown = run(f"show pong --trial {total}")
    assert "by hand, by an agent (my agent)" in " ".join(shown.split())
    said = "'pong' was started by an agent (my agent) through protein mcp; its calls: start_sweep 1, try_configs 1,"
    assert said in " ".join(run("status pong").split())
    with stores.opened(None) as store:
        assert stores.find(store, "pong").requested is Request.PAUSE


PROGRAM = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
print("not the protocol")
print(json.dumps({"score": parser.parse_args().lr, "steps": 1}))
"""


@pytest.mark.slow
def test_a_sweep_goes_on_when_the_client_and_its_server_have_ended(folder: Path, run: Run) -> None:
    (folder / "train.py").write_text(PROGRAM)
    words = ["mcp", "--allow-start", "python train.py", "--max-cost", "1m", "--max-trials", "30"]
    server = StdioServerParameters(command=sys.executable, args=["-m", "protein", *words], env=dict(os.environ))

    async def session() -> tuple[dict[str, Any], list[str]]:
        async with Client(server, read_timeout_seconds=PATIENCE_SECONDS) as client:
            started = await client.call_tool("start_sweep", {**WRITES["start_sweep"], "max_cost": "50s"})
            beyond = await client.call_tool("start_sweep", {**WRITES["start_sweep"], "name": "b", "max_cost": "50s"})
            return json.loads(started.content[0].text), [beyond.content[0].text]  # type: ignore[union-attr]

    started, (beyond,) = anyio.run(session)
    assert started["max_trials"] == 30 and "are left of the budget" in beyond
    wait_until(lambda: run.json("status a --json")["ended"], "the end of the sweep")
    status = run.json("status a --json")
    assert status["trials"]["complete"] == 30 and "max_trials" not in status["ended"]
    assert run.json("status --json")[0]["name"] == "a"
    with stores.opened(None) as store:
        assert stores.find(store, "a").spec.tags == (agents.TAG,)


def test_the_standard_output_carries_the_protocol_alone(filled: Path) -> None:
    server = StdioServerParameters(command=sys.executable, args=["-m", "protein", "mcp"], env=dict(os.environ))
    strange: list[Any] = []

    async def heard(message: Any) -> None:
        strange.append(message)

    async def session() -> str:
        async with Client(server, read_timeout_seconds=PATIENCE_SECONDS, message_handler=heard) as client:
            answer = await client.call_tool("list_sweeps", {})
            return str(answer.content[0].text)  # type: ignore[union-attr]

    assert [sweep["name"] for sweep in json.loads(anyio.run(session))] == [marked("pong")]
    assert not [one for one in strange if isinstance(one, Exception)]
