import itertools
import json
from pathlib import Path

import pytest
import torch
from event_log import EventLog

from protein.trainer.config import RunConfig
from protein.trainer.errors import ConfigError
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.machine import precision_table
from protein.trainer.machine.precision import autocast
from protein.trainer.machine.precision_table import ORDER, Precisions, Row, look_up, precisions_of, read, written
from protein.trainer.run import run

HOPPER, CUDA = (9, 0), torch.device("cuda")


def row(hidden: int, samples: int, part: str = "update", network: str = "mlp", **ns: float) -> Row:
    return Row(
        device="a GPU",
        capability=HOPPER,
        part=part,  # type: ignore[arg-type]
        network=network,
        hidden=hidden,
        samples=samples,
        ns={"fp32": 10.0} | ns,
    )


ROWS = (
    row(64, 1024, tf32=9.0, bf16=12.0),
    row(64, 8192, tf32=9.0, bf16=9.5),
    row(512, 8192, tf32=7.0, bf16=4.0, fp16=4.0),
    row(512, 4096, "acting", tf32=10.0, bf16=11.0),
    row(256, 4096, "acting", tf32=10.0, bf16=8.0),
    row(128, 2048, network="mlp+lstm", fp16=5.0),
)


def config(precision: str = "auto", hidden: int = 512, **train: object) -> RunConfig:
    policy = {"hidden_size": hidden}
    return RunConfig.from_dict(
        {"env": {"num_envs": 4096}, "policy": policy, "train": {"precision": precision, **train}}
    )


def test_the_table_is_read_back_as_it_is_written_and_the_shipped_one_is_whole() -> None:
    assert read(written(ROWS)) == ROWS
    assert all(one.fastest in ORDER for one in precision_table.shipped())


@pytest.mark.parametrize(
    "wrong",
    [
        {"ns": {"tf32": 1.0}},  # nothing to be slower than
        {"ns": {"fp32": 1.0, "fp8": 1.0}},
        {"ns": {"fp32": 0.0}},
        {"part": "reset"},
        {"capability": [9]},
        {"hidden": "64"},
        {"more": 1},
    ],
)
def test_a_row_that_is_wrong_is_named(wrong: dict[str, object]) -> None:
    good = json.loads(written(ROWS[:1]))["rows"][0]
    with pytest.raises(ValueError, match="row 2 of a table of precisions is wrong"):
        read(json.dumps({"rows": [good, good | wrong]}))


def test_what_is_chosen_was_never_slower_than_full_precision_in_a_row_that_is_not_above_the_run() -> None:
    sizes = (1, 63, 64, 100, 256, 512, 4000), (1, 1024, 5000, 8192, 10**6)
    for part, network, hidden, samples in itertools.product(("acting", "update"), ("mlp", "cnn"), *sizes):
        found = look_up(ROWS, capability=HOPPER, part=part, network=network, hidden=hidden, samples=samples)
        below = [
            one
            for one in ROWS
            if (one.part, one.network) == (part, network) and one.hidden <= hidden and one.samples <= samples
        ]
        assert (found == "auto") == (not below)
        if below:
            largest = max(below, key=lambda one: (one.hidden, one.samples))
            assert largest.ns[found] <= min(largest.ns[name] for name in ("fp32", "tf32") if name in largest.ns)
    assert look_up(ROWS, capability=(8, 0), part="update", network="mlp", hidden=512, samples=8192) == "auto"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (config(), ("fp32", "bf16")),  # of equal ones the fuller: acting, then bf16 before fp16
        (config("tf32"), ("tf32", "tf32")),
        (config("bf16", update_precision="auto"), ("bf16", "bf16")),
        (config(update_precision="fp32"), ("fp32", "fp32")),
        (config(train_fp16=True), ("fp32", "fp16")),
        (config(cpu_inference=True), ("auto", "bf16")),
        (config(hidden=64), ("auto", "tf32")),
        (config(hidden=64, minibatch_size=512), ("auto", "auto")),
        (config(hidden=64, accumulation_steps=8), ("auto", "tf32")),
        (config(hidden=64, accumulation_steps=16), ("auto", "auto")),
        (config(hidden=300, overlap=True), ("bf16", "tf32")),
        (config(hidden=512, overlap=True, minibatch_size=1024), ("tf32", "tf32")),  # one for both threads
    ],
)
def test_each_part_of_a_run_has_the_precision_of_its_row(given: RunConfig, found: tuple[str, str]) -> None:
    assert precisions_of(given, CUDA, rows=ROWS, capability=HOPPER) == found
    same = given.train.precision
    assert precisions_of(given, CUDA, rows=(), capability=HOPPER)[0] == same
    assert precisions_of(given, torch.device("cpu"), rows=ROWS)[0] == same


@pytest.mark.parametrize(
    ("sections", "agents"),
    [
        ({"env": {"name": "pong", "num_envs": 512}}, 512),
        ({"env": {"name": "snake", "num_envs": 2}}, 512),
        ({"env": {"name": "entities", "num_envs": 64}}, 512),
        ({"env": {"name": "pong2", "num_envs": 256}}, 512),
        ({"env": {"name": "pong2", "num_envs": 512}, "selfplay": {"on": True}}, 512),  # it acts for one side
        ({"env": {"name": "gym:CartPole-v1", "num_envs": 512}}, 512),
    ],
)
def test_what_acts_is_looked_up_by_its_agents(sections: dict[str, dict[str, object]], agents: int) -> None:
    given = RunConfig.from_dict(sections | {"policy": {"hidden_size": 512}, "train": {"update_precision": "fp32"}})
    for samples, found in ((agents, "bf16"), (agents + 1, "auto")):
        rows = (row(512, samples, "acting", bf16=8.0),)
        assert precisions_of(given, CUDA, rows=rows, capability=HOPPER).acting == found, samples


def test_a_resumed_run_keeps_what_was_chosen_for_it() -> None:
    before = Precisions("tf32", "fp16")
    assert precisions_of(config(), CUDA, before=before, rows=ROWS, capability=HOPPER) == before
    assert precisions_of(config("bf16", update_precision="auto"), CUDA, before=before) == ("bf16", "fp16")
    assert precisions_of(config("fp32"), CUDA, before=before) == ("fp32", "fp32")
    assert precisions_of(config(), torch.device("cpu"), before=before) == ("auto", "auto")


def test_a_checkpoint_names_what_was_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = RunConfig.from_dict(
        {
            "env": {"num_envs": 8, "frame_skip": 40},
            "policy": {"hidden_size": 8},
            "train": {"total_timesteps": 128, "horizon": 16, "minibatch_size": 64, "device": "cpu"},
            "eval": {"episodes": 1, "num_envs": 1},
        }
    )
    for name, chosen in (("given", None), ("chosen", Precisions("auto", "bf16"))):
        if chosen:
            monkeypatch.setattr("protein.trainer.run.precisions_of", lambda *_, chosen=chosen, **__: chosen)
        events = EventLog()
        run(small, directory=tmp_path / name, report=events.record)
        details = checkpoints.read(tmp_path / name / checkpoints.FILE_NAME).details
        assert details.get("precisions") == (None if chosen is None else list(chosen))
        assert events[0].get("precision") == (None if chosen is None else "auto, updates in bf16")


def test_products_of_float32_follow_the_update_wherever_it_has_them() -> None:
    assert Precisions("fp32", "tf32").products == "tf32"
    assert Precisions("fp32", "bf16").products == "fp32"
    assert Precisions("bf16", "bf16").products == "bf16"


def test_acting_changes_tf32_only_where_it_differs_from_the_update() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    try:
        for precision, inside in (("fp32", ("highest", False)), ("tf32", ("high", True)), ("auto", ("high", True))):
            with autocast(CUDA, precision):
                assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == inside
            assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("high", True)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"train_fp16": True, "update_precision": "bf16"}, "both set the update's precision: leave one of them out"),
        ({"overlap": True, "precision": "fp32", "update_precision": "tf32"}, "use one of tf32 and fp32 for both"),
        ({"overlap": True, "update_precision": "fp32"}, "use one of tf32 and fp32 for both"),
    ],
)
def test_precisions_that_cannot_be_had_at_once_are_refused(train: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig.from_dict({"train": train})
