"""What only a GPU shows: a run with recorded launches is the run without, for every kind of network and of action.

All tests that need a GPU are here, so that a machine that has one, and little else, runs them by one command:
scripts/gpu_benchmark.sh does so first. So this file imports nothing but pytest, torch, the trainer, and helpers that
import no more. It needs no fixture of `conftest.py`. With `GPU_TESTS_ON=cpu` it runs on a CPU: a test of this file.
"""

import contextlib
import dataclasses
import functools
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from language_runs import small as small_language
from language_runs import write_corpus
from ppo_runs import small
from whole_runs import StopAfter, go, same, tensors

from protein.trainer import kernels
from protein.trainer.config import RunConfig
from protein.trainer.kinds import Config
from protein.trainer.language.config import LanguageConfig
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.machine.graphs import Recorder, standing_in
from protein.trainer.machine.stopwatch import Stopwatch

DEVICE = torch.device(os.environ.get("GPU_TESTS_ON", "cuda"))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="no GPU: scripts/gpu_benchmark.sh runs it"
    ),
]

PPO: dict[str, dict[str, dict[str, Any]]] = {
    "mlp": {},
    "cnn of bytes": {"env": {"name": "snake", "num_envs": 1}, "policy": {"encoder": "cnn", "channels": 4}},
    "lstm": {"policy": {"recurrence": "lstm"}},
    "mingru": {"policy": {"recurrence": "mingru"}},
    "several actions": {"env": {"name": "entities", "num_envs": 2}},
    "continuous actions": {"env": {"name": "pendulum"}},
    "two halves": {"env": {"double_buffer": True}},
    "truncations with a memory": {
        "env": {"name": "pendulum", "double_buffer": True},
        "policy": {"recurrence": "lstm"},
        "train": {"normalize_observations": "on"},
    },
    "value bins": {"policy": {"value_bins": 11}},
    "own value": {"policy": {"separate_value": True}},
    "normalised": {"train": {"normalize_observations": "on", "reward_scaling": "return"}},
    "bf16": {"train": {"precision": "bf16"}},
    "fp16 updates": {"train": {"train_fp16": True}},
    "muon": {"train": {"optimizer": "muon"}},
    "parts": {"train": {"accumulation_steps": 2}},
    "target_kl": {"train": {"target_kl": 0.001}},
    "target_entropy": {"train": {"target_entropy": 0.5}},
    "acting on the cpu": {"train": {"cpu_inference": True}},
    "overlap": {"train": {"overlap": True}},
}


def ppo(case: str, **train: Any) -> RunConfig:
    sections = PPO[case]
    agents = {"snake": {"num_envs": 1}, "entities": {"num_envs": 2}}.get(sections.get("env", {}).get("name", ""))
    settings = sections.get("train", {}) | {"device": str(DEVICE), "threads": 1} | train
    evaluation = {} if agents is None else {"eval": {"episodes": 256, "num_envs": 256}}
    return small(**(sections | {"train": settings} | evaluation))


def language(folder: Path, **train: Any) -> LanguageConfig:
    return small_language(write_corpus(folder), train={"device": str(DEVICE)} | train)


def trained(config: Config, folder: Path, **options: Any) -> dict[str, torch.Tensor]:
    torch.backends.cudnn.deterministic = True  # or gradients of convolutions are sums in an order by chance
    with standing_in() if DEVICE.type == "cpu" else contextlib.nullcontext():
        go(config, folder, **options)
    return tensors(folder)


def assert_same(recorded: Config, usual: Config, folder: Path) -> None:
    """Both runs end with the same weights, state of the optimiser and random state, bit for bit."""
    one, other = trained(recorded, folder / "recorded"), trained(usual, folder / "usual")
    if not same(one, other):
        repeats = same(other, trained(usual, folder / "again"))
        differing = [name for name in other if name not in one or not one[name].equal(other[name])]
        pytest.fail(
            f"{len(differing)} of {len(other)} tensors differ, such as {differing[0]}; a run that is not recorded"
            f" {'repeats' if repeats else 'does not repeat'} itself"
        )


@pytest.mark.parametrize("case", PPO)
def test_a_recorded_run_of_ppo_is_the_usual_one(case: str, tmp_path: Path) -> None:
    assert_same(ppo(case, graphs="on"), ppo(case, graphs="off"), tmp_path)


@pytest.mark.parametrize(("first", "then"), [("on", "off"), ("off", "on")])
def test_a_checkpoint_resumes_whether_recorded_or_not(first: str, then: str, tmp_path: Path) -> None:
    case = "truncations with a memory"
    straight = trained(ppo(case, graphs=then), tmp_path / "straight")
    trained(ppo(case, graphs=first), tmp_path / "cut", stop=StopAfter(4))
    resumed = trained(ppo(case, graphs=then), tmp_path / "resumed", resume=tmp_path / "cut" / checkpoints.FILE_NAME)
    assert same(resumed, straight)


@pytest.mark.parametrize(
    "train",
    [{}, {"optimizer": "adamw"}, {"micro_batch": 3}, {"precision": "bf16"}],
    ids=["muon", "adamw", "a last part of two rows", "bf16"],
)
def test_a_recorded_run_of_a_language_model_is_the_usual_one(train: dict[str, Any], tmp_path: Path) -> None:
    recorded = language(tmp_path / "data", **train, graphs="on")
    usual = dataclasses.replace(recorded, train=dataclasses.replace(recorded.train, graphs="off"))
    assert_same(recorded, usual, tmp_path)


def test_a_recording_that_fails_leaves_the_others_and_what_draws() -> None:
    """On CUDA a read by the host breaks a recording off, and generators count as recorded until one has ended well."""
    with standing_in() if DEVICE.type == "cpu" else contextlib.nullcontext():
        x, own = torch.ones(3, device=DEVICE), torch.Generator(DEVICE)

        def drawn() -> torch.Tensor:
            return x + torch.rand(3, device=DEVICE) + torch.rand(3, device=DEVICE, generator=own)

        good = Recorder(DEVICE).record("this", drawn, generators=[own])
        failing = Recorder(DEVICE)
        assert failing.record("that", lambda: x.mul_(drawn()).sum().item(), keeps=[x], generators=[own]) is None
        (line,) = failing.failures
        assert "due to a previous error" not in line and x.tolist() == [1.0] * 3
        assert good is not None and good.replay().isfinite().all() and drawn().isfinite().all()
        again = Recorder(DEVICE).record("this again", drawn, generators=[own])
        assert again is not None and again.replay().isfinite().all()


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


STEPS, AGENTS, UNITS = 12, 7, 8
LAYERS: dict[str, tuple[Any, list[torch.Tensor], int]] = {  # function, its inputs, and how many of them have a gradient
    "advantages": (
        functools.partial(kernels.advantages, gamma=0.99, gae_lambda=0.95),
        [
            normal(STEPS, AGENTS, seed=1),
            normal(STEPS + 1, AGENTS, seed=2),
            normal(STEPS, AGENTS, seed=3) > 1,
            normal(STEPS, AGENTS, seed=4).exp(),
        ],
        0,
    ),
    "mingru": (
        kernels.mingru_sequence,
        [
            normal(STEPS, AGENTS, UNITS, seed=1),
            normal(STEPS, AGENTS, UNITS, seed=2),
            normal(AGENTS, UNITS, seed=3),
            normal(STEPS, AGENTS, seed=4) > 1,
        ],
        2,
    ),
    "lstm": (
        kernels.lstm_sequence,
        [
            normal(STEPS, AGENTS, UNITS, seed=1),
            normal(4 * UNITS, UNITS, seed=2) / 3,
            normal(4 * UNITS, UNITS, seed=3) / 3,
            normal(4 * UNITS, seed=4),
            normal(AGENTS, 2 * UNITS, seed=5),
            normal(STEPS, AGENTS, seed=6) > 1,
        ],
        4,
    ),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_goes_over_time_is_the_same_on_the_device(layer: str, dtype: torch.dtype) -> None:
    """Outputs and gradients against those of the CPU in float64; there the kernels' own tests have the definition."""
    function, inputs, trained = LAYERS[layer]
    found = []
    for device, kind in ((torch.device("cpu"), torch.float64), (DEVICE, dtype)):
        given = [tensor.to(device, kind if tensor.is_floating_point() else tensor.dtype) for tensor in inputs]
        given = [tensor.requires_grad_(index < trained) for index, tensor in enumerate(given)]
        results = function(*given)
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        if trained:
            by_output = normal(*results[0].shape, seed=9).to(results[0])
            results += torch.autograd.grad(results[0], given[:trained], by_output)
        found.append([result.detach().cpu().double() for result in results])
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4  # products of float32 may be of TF32: see `Arithmetic`
    for expected, result in zip(*found, strict=True):
        torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


def test_a_profile_waits_for_the_device_and_changes_nothing(tmp_path: Path) -> None:
    config = language(tmp_path / "data")
    exact = Stopwatch(DEVICE, exact=True)
    assert same(trained(config, tmp_path / "profiled", stopwatch=exact), trained(config, tmp_path / "usual"))
    assert exact.seconds["backward"] > 0


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_second_gpu_records_on_its_own_streams(tmp_path: Path) -> None:
    config = language(tmp_path / "data")
    second = language(tmp_path / "again", device="cuda:1")
    assert same(trained(config, tmp_path / "first"), trained(second, tmp_path / "second"))
    first, second_ppo = ppo("lstm", graphs="on"), ppo("lstm", graphs="on", device="cuda:1")
    assert same(trained(first, tmp_path / "ppo"), trained(second_ppo, tmp_path / "second ppo"))


@pytest.mark.skipif(DEVICE.type == "cpu", reason="the stand-in sees no compiled passes")
def test_compiled_passes_are_recorded_as_they_are(tmp_path: Path) -> None:
    assert_same(ppo("mlp", compile=True, graphs="on"), ppo("mlp", compile=True, graphs="off"), tmp_path)
    recorded = language(tmp_path / "data", compile=True, graphs="on")
    usual = dataclasses.replace(recorded, train=dataclasses.replace(recorded.train, graphs="off"))
    assert_same(recorded, usual, tmp_path / "language")
