"""Fixtures for tests of the compiled kernels: each instruction set of this processor, and several threads.

A module whose tests shall run with every instruction set imports `instruction_set`.
"""

from collections.abc import Iterator

import pytest

from protein.trainer import kernels
from protein.trainer.kernels import _native


@pytest.fixture(params=_native.instruction_sets(), autouse=True)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _native.instruction_set()
    _native.use_instruction_set(request.param)
    yield request.param
    _native.use_instruction_set(before)


@pytest.fixture(name="threads")
def four_threads() -> Iterator[None]:
    """Four threads for the length of a test."""
    before = kernels.get_threads()
    kernels.set_threads(4)
    yield
    kernels.set_threads(before)
