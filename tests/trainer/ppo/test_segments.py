"""Which segments make a minibatch."""

import torch

from protein.trainer.ppo.update import shuffled


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_shuffled_has_every_segment_once_and_a_short_last_minibatch() -> None:
    parts = list(shuffled(10, 4, generator()))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert sorted(torch.cat(parts).tolist()) == list(range(10))
    assert not torch.equal(torch.cat(parts), torch.cat(list(shuffled(10, 4, generator(1)))))
