"""Spaces of observations and actions of others' environments as rows: bytes stay bytes, and nothing is lost."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from batches import Batch
from gym_worlds import ECHOES
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.trainer.environments import spec
from protein.trainer.environments.spaces import Observations, actions_of
from protein.trainer.errors import ConfigError, TrainerError


@pytest.mark.parametrize(
    ("name", "shape", "sizes", "continuous"),
    [
        ("Many", (4,), (3, 5), 0),
        ("Switches", (3,), (2, 2, 2, 2), 0),
        ("Box", (6,), (), 2),
        ("Image", (3, 6, 5), (2,), 0),
        ("Grey", (1, 6, 5), (2,), 0),
        ("Frames", (4, 6, 5), (2,), 0),
        ("Nested", (7,), (2,), 0),
        ("Bytes", (95,), (2,), 0),
        ("Mixed", (92,), (2,), 0),
        ("Named", (2,), (2, 3, 2, 2, 3), 0),
    ],
)
def test_spaces(name: str, shape: tuple[int, ...], sizes: tuple[int, ...], continuous: int) -> None:
    described = spec(f"gym:gym_worlds:{name}-v0")
    assert (described.observation_shape, described.action_sizes) == (shape, sizes)
    assert (described.observation_size, described.continuous_actions) == (math.prod(shape), continuous)
    batch = Batch(described.name, 3)
    batch.envs.reset(0, batch.observations)
    assert np.isfinite(batch.observations).all()
    for actions in ([1.5] * continuous, [-1.0] * continuous) if continuous else (np.array(sizes) - 1, 0):
        batch.step(actions)  # the environment asserts that they are of its space
        assert np.isfinite(batch.observations).all()


def test_actions_are_mapped_to_the_space() -> None:
    many = Batch("gym:gym_worlds:Many-v0", 1)
    many.envs.reset(0, many.observations)
    many.step([2, 4])
    assert many.rewards.tolist() == [3 + 3]  # the starts are 1 and -1
    box = Batch("gym:gym_worlds:Box-v0", 1)
    box.envs.reset(0, box.observations)
    for unit, expected in (([0, 0], 0 + 5), ([-1, 1], -2 + 10), ([-9, 0.5], -2 + 7.5)):
        box.step(unit)
        assert box.rewards.tolist() == [expected]
    with pytest.raises(ValueError, match="actions must be finite"):
        box.step([np.nan, 0])


CHOICES = st.one_of(
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 4), st.integers(-3, 3)),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.integers(1, 3).map(spaces.MultiBinary),
)
BOXES = st.builds(
    lambda shape: spaces.Box(-2.0, 3.0, tuple(shape)), st.lists(st.integers(1, 2), min_size=1, max_size=2)
)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Returns Dicts and Tuples of these, and of one another."""
    whole = st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
            st.dictionaries(st.sampled_from("abc"), parts, min_size=1).map(spaces.Dict),
        ),
        max_leaves=5,
    )
    return st.lists(whole, min_size=1, max_size=3).map(spaces.Tuple)


@settings(max_examples=40)
@given(nested(CHOICES) | nested(BOXES), st.integers(0, 2**32 - 1))
def test_the_actions_of_nested_spaces_are_of_the_space_and_none_is_lost(space: Any, seed: int) -> None:
    draw, found = np.random.default_rng(seed), actions_of(space)
    if found.continuous:
        rows = draw.uniform(-1.0, 1.0, (6, found.continuous)).astype(np.float32)
    else:
        rows = np.stack([draw.integers(0, n, 6) for n in found.sizes], axis=1).astype(np.int32)
    mapped = found.to_space(rows[:, 0] if rows.shape[1] == 1 else rows)
    assert len(mapped) == 6 and all(space.contains(one) for one in mapped)
    flat = [np.asarray(spaces.flatten(space, one)) for one in mapped]
    for i, j in itertools.combinations(range(6), 2):
        assert np.array_equal(rows[i], rows[j]) == np.array_equal(flat[i], flat[j])
    if found.continuous:  # in the order of the space
        np.testing.assert_allclose(np.stack(flat), 0.5 + 2.5 * rows, rtol=1e-5, atol=1e-6)


@settings(max_examples=20)
@given(CHOICES, BOXES, st.booleans())
def test_a_mixture_of_choices_and_boxes_is_refused(choice: Any, box: Any, first: bool) -> None:
    parts = (choice, spaces.Dict({"x": box})) if first else (box, spaces.Tuple((choice,)))
    with pytest.raises(ConfigError, match="all discrete or all continuous; make the Box a choice of steps"):
        actions_of(spaces.Tuple(parts))


def test_observations_are_mapped_to_rows() -> None:
    def first(name: str) -> tuple[np.ndarray, Any]:
        batch = Batch(f"gym:gym_worlds:{name}-v0", 1)
        batch.envs.reset(0, batch.observations)
        space = ECHOES[name][0]
        space.seed(int(np.random.SeedSequence([0, 0]).generate_state(1)[0] >> 1))
        return batch.observations[0], space.sample()

    row, image = first("Image")
    assert row.dtype == np.uint8
    np.testing.assert_array_equal(row.reshape(3, 6, 5)[2], image[:, :, 2])
    row, grey = first("Grey")
    np.testing.assert_array_equal(row.reshape(6, 5), grey)
    assert (spec("gym:gym_worlds:Image-v0").observation_high, spec("gym:gym_worlds:Grey-v0").observation_high) == (
        255.0,
        15.0,
    )
    row, both = first("Bytes")
    # Side by side in the order of their names, all bytes: what is one-hot is 1 after the policy's division.
    expected = [*both["image"].reshape(-1), *255 * np.eye(3)[both["key"]], *255 * both["switches"].astype(int)]
    assert row.dtype == np.uint8
    np.testing.assert_array_equal(row, expected)
    row, mixed = first("Mixed")
    np.testing.assert_allclose(row, [*mixed[0].reshape(-1), *mixed[1]], rtol=1e-6)
    assert row.dtype == np.float32, "one part has no bytes"
    row, choice = first("Many")
    np.testing.assert_array_equal(row, np.eye(4)[choice])
    row, nested = first("Nested")
    expected = [*np.eye(3)[nested["a"]], *nested["b"][0], *np.eye(2)[nested["b"][1]]]
    np.testing.assert_allclose(row, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("space", "chosen"),
    [
        (spaces.Discrete(4), np.array([1, 2])),
        (spaces.MultiDiscrete([3, 3]), np.array([2])),
        (spaces.MultiBinary(3), np.array([0, 5, 1])),
        (
            spaces.Dict({"a": spaces.Box(0, 255, (1,), np.uint8), "b": spaces.MultiBinary(1)}),
            {"a": [np.uint8(1)], "b": [2]},
        ),
    ],
)
def test_choices_that_are_not_of_the_space_are_refused(space: Any, chosen: Any) -> None:
    read = Observations(space)
    with pytest.raises(TrainerError, match=r"neither 0 nor 1|none of its choices"):
        read(chosen, np.zeros(read.size, read.dtype))


def test_an_image_may_be_a_list() -> None:
    space = spaces.Box(0.0, 1.0, (2, 2, 3), np.float32)
    read, image = Observations(space), space.sample()
    row = np.zeros(read.size, np.float32)
    read(image.tolist(), row)
    np.testing.assert_array_equal(row.reshape(3, 2, 2), np.moveaxis(image, -1, 0))


def test_empty_spaces_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"its observations are empty: Box"):
        Observations(spaces.Box(-1, 1, (0,), np.float32))
    with pytest.raises(ConfigError, match=r"its action space Box.* is empty: give it at least one action"):
        actions_of(spaces.Box(-1, 1, (0,), np.float32))
    for empty in (spaces.Dict({}), spaces.Tuple(()), spaces.Tuple((spaces.Discrete(2), spaces.Dict({})))):
        with pytest.raises(ConfigError, match=r"its action space (Dict|Tuple).* is empty: give it at least one action"):
            actions_of(empty)


@pytest.mark.parametrize("space", [spaces.Discrete(2**40), spaces.MultiDiscrete([2**40, 3])])
def test_more_choices_than_a_network_can_have_are_refused(space: Any) -> None:
    for what, use in (("observations", Observations), ("action space", actions_of)):
        with pytest.raises(
            ConfigError, match=rf"its {what} .*1,099,511,627,77\d choices, and the limit is 1,048,576; "
        ):
            use(space)
    assert Observations(spaces.MultiBinary((1025, 1025))).size == 1025**2, "a picture of bits"


def test_bytes_of_a_smaller_range_beside_an_image_reach_as_far() -> None:
    image, switch, level = (spaces.Box(0, high, (2,), np.uint8) for high in (255, 1, 100))
    read = Observations(spaces.Dict({"a": image, "b": switch, "c": level}))
    row = np.zeros(read.size, read.dtype)
    read({key: np.array([1, most], np.uint8) for key, most in (("a", 255), ("b", 0), ("c", 100))}, row)
    assert (read.high, row.tolist()) == (255.0, [1, 255, 255, 0, 2, 200])
