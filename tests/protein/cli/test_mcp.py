"""`protein mcp` by its package's own client, in memory but for one test: what is read, and what is refused."""

import dataclasses
import json
import os
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from commands import Run
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE_SECONDS, wait_until
from sample_trials import fill_store
from store_samples import complete, new_sweep, start, sweep_spec

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.types import Implementation, TextContent

from protein.api import agents, stores
from protein.api.agents import Agents, Allowance, Start
from protein.cli import main
from protein.cli.mcp import CLOSE, OPEN, make_server, marked
from protein.errors import StoreUnavailable, UsageError
from protein.run.lease import current_owner
from protein.types import AgentCall, Request, Trial
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

    async def session() -> list[tuple[bool, str]]:
        found = []
        async with Client(make_server(allowed), client_info=Implementation(name="my agent", version="1")) as client:
            for tool, arguments in calls:
                answer = await client.call_tool(tool, arguments)
                (content,) = answer.content
                assert isinstance(content, TextContent)
                found.append((bool(answer.is_error), content.text))
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
    for (error, answer), (_, line) in zip(answers, lines.values(), strict=False):
        assert not error, answer
        assert json.loads(answer) == marked(run.json(line)) and "\n" not in answer
    few, (_, last), (_, one), (_, budget) = answers[-4:]
    assert few == (True, run.error("laws pong --json"))
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


class Started:
    """A process of a test that lives until it is told: this one."""

    pid = os.getpid()
    code: int | None = None

    def poll(self) -> int | None:
        return self.code


class Ended(Started):
    """One that has refused to sweep."""

    code = 2


def test_no_order_of_calls_restarts_and_ends_exceeds_the_budget(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a plain model: what running sweeps may still cost, and others have cost, is never above the budget."""
    draw, given, running, refused = random.Random(0), dict[str, float](), dict[str, Trial](), 0
    with stores.opened(None, create=True) as store:

        def spawn(_: Agents, words: Sequence[str], log: Path) -> Started:
            name = next(word for word in words if word.startswith("--name=")).removeprefix("--name=")
            sweep = store.find_sweep(name) or store.create_sweep(sweep_spec(name), None)
            store.set_ended(sweep.id, "")
            running[name] = start(store, sweep, owner=current_owner())
            return Started()

        monkeypatch.setattr(Agents, "_spawn", spawn)

        def spent(name: str) -> float:
            sweep = store.find_sweep(name)
            return 0.0 if sweep is None else store.summaries([sweep.id])[sweep.id].spent_seconds

        def end(name: str) -> None:
            trial = running.pop(name)
            cost = draw.uniform(0.0, max(given[name] - spent(name), 0.0))
            store.finish_trial(trial, dataclasses.replace(complete(), cost_seconds=cost))
            store.set_ended(trial.sweep_id, "done")
            for call in store.agent_calls():
                if call.sweep_id == trial.sweep_id:
                    store.end_agent_call(call.number, call.outcome, owner="")
            del given[name]

        for step in range(25):
            server = Agents(
                allowance(program, "python train.py", workers=3)
            )  # a new one each time: it remembers nothing
            if given and draw.random() < 0.4:
                end(draw.choice(sorted(given)))
                continue
            name, wanted = draw.choice("abcdef"), draw.uniform(1.0, 40.0)
            others = sum(max(given.get(one, 0.0), spent(one)) for one in "abcdef" if one != name)
            fits = others + wanted <= 60.0 and name not in given and len(given) < 3
            try:
                server.start(Start(run="python train.py", name=name, max_cost_seconds=wanted, space=SPACE), "an agent")
                assert fits, (step, name, wanted, given)
                given[name] = wanted
            except UsageError:
                refused += 1
                assert not fits, (step, name, wanted, given)
            assert server.budget()["used_seconds"] <= 60.0
    assert refused > 3 and len(kept(program)) > 8


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
    assert server.budget()["used_seconds"] == 50.0
    with stores.opened(None) as store:
        for name in "de":  # a person's sweeps under names that agents have tried
            store.create_sweep(sweep_spec(name), None)
            with pytest.raises(UsageError, match="was not started by an agent"):
                server.request(name, Request.STOP, "stop_sweep", "an agent")


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

    assert [sweep["name"] for sweep in json.loads(anyio.run(session))] == ["pong"]
    assert not [one for one in strange if isinstance(one, Exception)]
