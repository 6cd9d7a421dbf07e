"""AdamW without torch's class around it: the same steps and the same state, and no compiler in memory."""

import subprocess
import sys

import torch

from protein.trainer.optim.adamw import AdamW

SETTINGS = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-5, "weight_decay": 0.1}


def steps(optimizer: AdamW | torch.optim.AdamW, weights: torch.nn.Parameter, first: int, last: int) -> None:
    for step in range(first, last):
        optimizer.param_groups[0]["lr"] = 0.01 / (1 + step)
        weights.grad = torch.sin(weights.detach() * step)
        optimizer.step()


def test_steps_and_state_are_torchs() -> None:
    start = torch.randn(333, generator=torch.Generator().manual_seed(0))
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    one, other = AdamW(ours, **SETTINGS), torch.optim.AdamW([theirs], fused=True, **SETTINGS)  # type: ignore[arg-type]
    steps(one, ours, 0, 4)
    steps(other, theirs, 0, 4)
    assert torch.equal(ours, theirs)
    for name, value in other.state_dict()["state"][0].items():
        assert torch.equal(one.state_dict()["state"][0][name], value)
    # Each goes on from the other's state.
    states = one.state_dict(), other.state_dict()["state"]
    one.load_state_dict({"state": states[1], "param_groups": one.param_groups})
    other.load_state_dict({"state": states[0]["state"], "param_groups": other.state_dict()["param_groups"]})
    steps(one, ours, 4, 7)
    steps(other, theirs, 4, 7)
    assert torch.equal(ours, theirs) and not torch.equal(ours, start)


def test_a_run_does_not_load_torchs_compiler() -> None:
    code = (
        "import sys\n"
        "from protein.trainer.config import RunConfig\n"
        "from protein.trainer.run import run\n"
        "config = RunConfig.from_dict({'env': {'name': 'cartpole', 'num_envs': 8},"
        " 'eval': {'episodes': 8, 'num_envs': 8},"
        " 'train': {'total_timesteps': 256, 'horizon': 16, 'minibatch_size': 64}})\n"
        "run(config, directory=None, report=lambda event: None)\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
