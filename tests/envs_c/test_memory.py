"""Memory: what is shown when, that no policy without memory beats chance, and that one with memory is always right."""

import numpy as np
import numpy.typing as npt
import pytest
from env_buffers import Stepper

SYMBOLS, DELAY_MIN, DELAY_MAX = 4, 10, 30
CUE, QUESTION = 4, 5  # the observation's marks


class Recall:
    """Keeps the symbol that was marked as the cue: one integer of memory an agent."""

    def __init__(self, agents: int) -> None:
        self.cue = np.zeros(agents, np.int32)

    def act(self, observations: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        shown = observations[:, :SYMBOLS].argmax(axis=1)
        self.cue = np.where(observations[:, CUE] == 1, shown, self.cue).astype(np.int32)
        return self.cue


@pytest.mark.parametrize("frame_skip", [1, 3, 100])
def test_who_remembers_is_always_right_whatever_the_frame_skip(frame_skip: int) -> None:
    stepper = Stepper("memory", 64, seed=1, frame_skip=frame_skip)
    recall = Recall(64)
    for _ in range(300):
        out = stepper.step(recall.act(stepper.out.observations))
        assert np.array_equal(out.rewards == 1, out.terminals)
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 500
    assert (episodes.score == 1).all()


def test_without_memory_the_score_is_chance_exactly() -> None:
    """The question always looks the same, so a policy of the observation alone always gives the same answer there.

    Over the four answers the scores sum to one in each episode, so their mean is 1/4 exactly, and a policy that draws
    its answer averages over them. It remains that the cue is uniform: that no single answer is better than the others.
    """
    scores = []
    for answer in range(SYMBOLS):
        stepper = Stepper("memory", 2000, seed=2)
        for _ in range(320):
            stepper.step(np.full(2000, answer, np.int32))
        scores.append(stepper.vec.drain_episodes().score)
    assert len(scores[0]) > 25_000
    assert (np.sum(scores, axis=0) == 1).all()
    share = np.mean(scores, axis=1)
    assert share == pytest.approx(1 / SYMBOLS, abs=4 * (0.1875 / len(scores[0])) ** 0.5)


def test_what_is_seen_after_the_cue_tells_nothing_about_it() -> None:
    """The last DELAY_MIN distractors and the delay against the cue: counts as independence would have them."""
    stepper = Stepper("memory", 4000, seed=3)
    recall = Recall(4000)
    shown = np.zeros((40, 4000), int)  # symbols by frame, SYMBOLS where none
    together = np.zeros((DELAY_MIN, SYMBOLS, SYMBOLS + 1))
    delays = np.zeros((SYMBOLS, DELAY_MAX + 1))
    since = np.zeros(4000, int)
    for _ in range(120):
        observations = stepper.out.observations
        actions = recall.act(observations)
        symbol = np.where(observations[:, :SYMBOLS].any(axis=1), observations[:, :SYMBOLS].argmax(axis=1), SYMBOLS)
        shown = np.concatenate([symbol[None], shown[:-1]])
        asked = observations[:, QUESTION] == 1
        for back in range(DELAY_MIN):
            np.add.at(together[back], (recall.cue[asked], shown[back + 1][asked]), 1)
        np.add.at(delays, (recall.cue[asked], since[asked] - 1), 1)
        since = np.where(asked, 0, since + 1)
        stepper.step(actions)
    assert delays[:, :DELAY_MIN].sum() == 0
    for table in (*together, delays[:, DELAY_MIN:]):
        expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()
        freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
        assert ((table - expected) ** 2 / expected).sum() < freedom + 5 * (2 * freedom) ** 0.5
        uniform = table.sum() / table.shape[1]
        assert table.sum(axis=0) == pytest.approx(uniform, abs=6 * uniform**0.5)


def test_actions_before_the_question_leave_no_trace() -> None:
    """Two groups that act differently until they are asked see the same, frame by frame."""
    rng = np.random.default_rng(4)
    one, other = Stepper("memory", 500, seed=4), Stepper("memory", 500, seed=4)
    for _ in range(200):
        assert one.out.observations.tobytes() == other.out.observations.tobytes()
        assert one.out.rewards[one.out.terminals].sum() == other.out.rewards[other.out.terminals].sum()
        asked = one.out.observations[:, QUESTION] == 1
        actions = rng.integers(0, SYMBOLS, (2, 500), dtype=np.int32)
        actions[1][asked] = actions[0][asked]
        one.step(actions[0])
        other.step(actions[1])


def test_every_observation_has_its_place_in_the_episode() -> None:
    stepper = Stepper("memory", 300, seed=5)
    place = np.zeros(300, int)
    for _ in range(400):
        seen = stepper.out.observations
        assert np.isin(seen, (0, 1)).all()
        symbols = seen[:, :SYMBOLS].sum(axis=1)
        assert np.array_equal(seen[:, CUE] == 1, place == 0)
        assert (symbols[place == 0] == 1).all()
        asked = seen[:, QUESTION] == 1
        assert (symbols <= 1).all()
        assert (symbols[asked] == 0).all()
        assert (place[asked] >= DELAY_MIN + 1).all()
        assert (place <= DELAY_MAX + 1).all()
        out = stepper.step()
        assert np.array_equal(out.terminals, asked)
        assert not out.truncations.any()
        assert (out.rewards[~asked] == 0).all()
        place = np.where(asked, 0, place + 1)
    lengths = stepper.vec.drain_episodes().length
    assert set(lengths) == set(range(DELAY_MIN + 2, DELAY_MAX + 3))
