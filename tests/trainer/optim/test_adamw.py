"""AdamW without torch's class around it: the same steps and the same state."""

import copy

import torch

from protein.trainer.optim.optimizer import AdamW, Group

BETAS, EPS, DECAY = (0.9, 0.99), 1e-5, 0.1


def steps(optimizer: AdamW | torch.optim.AdamW, weights: torch.nn.Parameter, first: int, last: int) -> None:
    for step in range(first, last):
        rate = 0.01 / (1 + step)
        if isinstance(optimizer, AdamW):
            optimizer.learning_rate = rate
        else:
            optimizer.param_groups[0]["lr"] = rate
        weights.grad = torch.sin(weights.detach() * step)
        optimizer.step()


def test_steps_and_state_are_torchs() -> None:
    start = torch.randn(9, 37, generator=torch.Generator().manual_seed(0))
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    group = Group(parameters=[ours], method="adamw", learning_rate=0.01, weight_decay=DECAY, betas=BETAS, eps=EPS)
    one = AdamW(group)
    other = torch.optim.AdamW([theirs], fused=True, lr=0.01, betas=BETAS, eps=EPS, weight_decay=DECAY)
    steps(one, ours, 0, 4)
    steps(other, theirs, 0, 4)
    assert torch.equal(ours, theirs)
    for name, value in other.state_dict()["state"][0].items():
        assert torch.equal(one.state()[0][name], value)
    # Each goes on from the other's state.
    states = copy.deepcopy(one.state()), copy.deepcopy(other.state_dict()["state"])
    one.set_state(states[1])
    other.load_state_dict({"state": states[0], "param_groups": other.state_dict()["param_groups"]})
    steps(one, ours, 4, 7)
    steps(other, theirs, 4, 7)
    assert torch.equal(ours, theirs) and not torch.equal(ours, start)


def test_of_a_vector_of_all_weights_only_the_marked_ones_decay() -> None:
    start = torch.randn(40, generator=torch.Generator().manual_seed(0))
    decays = (torch.arange(40) % 3 > 0).float()
    whole, marked, others = (
        torch.nn.Parameter(part) for part in (start.clone(), start[decays > 0], start[decays == 0])
    )
    common = {"method": "adamw", "learning_rate": 0.01, "betas": BETAS, "eps": EPS}
    parts: list[tuple[AdamW | torch.optim.AdamW, torch.nn.Parameter]] = [
        (AdamW(Group(parameters=[whole], weight_decay=DECAY, decays=decays, **common)), whole),  # type: ignore[arg-type]
        (torch.optim.AdamW([marked], lr=0.01, betas=BETAS, eps=EPS, weight_decay=DECAY), marked),
        (torch.optim.AdamW([others], lr=0.01, betas=BETAS, eps=EPS, weight_decay=0.0), others),
    ]
    for optimizer, weights in parts:
        steps(optimizer, weights, 0, 5)
    torch.testing.assert_close(whole[decays > 0], marked)
    torch.testing.assert_close(whole[decays == 0], others)
