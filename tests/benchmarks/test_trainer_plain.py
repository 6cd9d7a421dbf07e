"""The recurrent baseline of the trainer's benchmark: its two ways to respect the ends of episodes are the same."""

import torch
import trainer_plain_lstm as plain


def test_both_ways_of_the_recurrent_baseline_agree() -> None:
    torch.manual_seed(0)
    agent = plain.Agent(5, 3, 16)
    observations, starts = torch.randn(12, 9, 5), torch.rand(12, 9) < 0.2
    state = torch.randn(1, 9, 16), torch.randn(1, 9, 16)
    assert starts[0].any() and starts[1:].any()
    results = []
    for forward in (agent.by_pieces, agent.by_steps):
        agent.zero_grad()
        output = forward(observations, state, starts)
        output.square().sum().backward()
        results.append([output.detach(), *(p.grad.clone() for p in agent.parameters() if p.grad is not None)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_without_ends_it_is_one_call_of_the_layer() -> None:
    torch.manual_seed(1)
    agent = plain.Agent(5, 3, 16)
    observations, state = torch.randn(6, 4, 5), (torch.randn(1, 4, 16), torch.randn(1, 4, 16))
    hidden, _ = agent.lstm(agent.encode(observations), state)
    found = agent.by_pieces(observations, state, torch.zeros(6, 4, dtype=torch.bool))
    torch.testing.assert_close(found, agent.head(hidden))
