"""HEBO as a method of the comparison, over unit coordinates, in a process of its own (`engine.hebo_server`).

    hebo   a Gaussian process of power-transformed scores; a point of the front of three acquisitions (MACE)

HEBO 0.3.6 needs a numpy below 1.25, so it has its own environment, found by `PROTEIN_BENCH_HEBO` or in the cache:

    python3.11 -m venv ~/.cache/protein/HEBO==0.3.6
    cd ~/.cache/protein/HEBO==0.3.6/bin
    ./pip install numpy==1.24.4 scipy==1.12.0 pandas==2.0.3 scikit-learn==1.4.2 matplotlib==3.8.4 torch==2.13.0
    ./pip install numpy==1.24.4 GPy==1.13.2 pymoo==0.6.0 catboost==1.2.10 gpytorch==1.15.2 HEBO==0.3.6

Its defaults, but 8 Sobol points first, as for the other peers (its own number is one more than there are parameters).
It knows neither cost nor budget. A failed trial is told as the worst score so far (it would leave one without a number
out and suggest its like again); one before the first score is told once there is a score. Choices are categorical. A
suggestion that violates a constraint is replaced by the nearest valid one, and told as that.

Source: Cowen-Rivers et al., HEBO: Pushing The Limits of Sample-Efficient Hyperparameter Optimisation (2022).
"""

import json
import os
import subprocess
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from engine.protocol import Peer

from protein.errors import UsageError
from protein.space import Categorical, Space
from protein.types import Budget, Observation, Params

_NUM_INITIAL = 8


def interpreter() -> Path:
    """Returns where the interpreter of HEBO's environment is, or would be."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("PROTEIN_BENCH_HEBO") or Path(root) / "protein" / "HEBO==0.3.6" / "bin" / "python")


class HeboPeer(Peer):
    """One run. Raises `UsageError` when there is no environment for it."""

    def __init__(self, space: Space, start: Params | None, seed: int) -> None:
        if not interpreter().exists():
            raise UsageError(f"there is no {interpreter()}; benchmarks/engine/hebo_peers.py says how to make it")
        self._space, self._start = space, start
        self._worst: float | None = None
        self._early: list[Params] = []  # failed before anything gave a score
        self._process = subprocess.Popen(
            [str(interpreter()), str(Path(__file__).with_name("hebo_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        weakref.finalize(self, _end, self._process)
        kinds = [len(p.choices) if isinstance(p, Categorical) else 0 for p in space.parameters]
        self._send({"space": kinds, "seed": seed, "initial": _NUM_INITIAL + (start is not None)})

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        if not history and self._start is not None:
            return self._start
        self._send({"ask": True})
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("HEBO's process ended")
        x = np.array(json.loads(answer)["x"], dtype=np.float64)
        for i, p in enumerate(self._space.parameters):
            if isinstance(p, Categorical):
                x[i] = p.encode(x[i : i + 1])[0]
        params = self._space.from_unit(x)
        return params if self._space.is_valid(params) else self._space.snap(params)

    def tell(self, observation: Observation) -> None:
        if observation.score is None and self._worst is None:
            self._early.append(observation.params)
            return
        if observation.score is not None:
            self._worst = max(-observation.score, -observation.score if self._worst is None else self._worst)
            self._observe(observation.params, -observation.score)
        failed, self._early = [*self._early, *([observation.params] if observation.score is None else [])], []
        for params in failed:
            self._observe(params, self._worst)

    def _observe(self, params: Params, value: float | None) -> None:
        x = self._space.canonical(self._space.to_unit(params)[None, :])[0]
        for i, p in enumerate(self._space.parameters):
            if isinstance(p, Categorical):
                x[i] = p.decode(x[i : i + 1])[0]
        self._send({"x": x.tolist(), "y": value})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
