"""Any Gymnasium environment behind our interface: `gym:ID`. `spaces` says how its spaces become ours.

ID is what `gymnasium.make` takes, also with a module that registers it: `gym:CartPole-v1`, `gym:my_package:Maze-v0`.
Instances are stepped one after the other in this process; `pool` steps them in others (`gym-async:ID`). Atari's
environments have a module of their own.

The frame skip is inside each instance, so that it stops where the episode ends. Seeds come from (seed, index).
Gymnasium environments cannot be saved: a resumed run begins new episodes (see `trainer.environments.resume`).
"""

import contextlib
import copy
import functools
import importlib
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy.typing as npt

from protein.envs_c import EnvSpec

from ..errors import ConfigError, TrainerError
from ..users_code import RAISED, find_beside_us, in_words
from . import arguments
from .base import CountedEnv, Rows

try:
    import gymnasium
except ModuleNotFoundError as error:
    if error.name != "gymnasium":
        raise
    raise ConfigError(
        "Gymnasium is not installed, and environments 'gym:...' need it: pip install 'protein-sweep[gymnasium]'"
    ) from error

from .instances import Instances
from .spaces import ActionMap, Observations, actions_of, described

# Packages that register their environments when they are imported, and the extra that brings them.
_PACKAGES = {"ALE/": ("ale_py", "atari"), "MiniGrid-": ("minigrid", "minigrid"), "BabyAI-": ("minigrid", "minigrid")}
_EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "ale": "atari", "minigrid": "minigrid"}  # by a word of the error
_OURS = ("render_mode",)
_THEIR_REMEDY = re.compile(r",[^,`]*`pip install.*")  # of Gymnasium's messages: ours brings the same package


class Kind(NamedTuple):
    """One environment's description, and how its spaces become ours."""

    spec: EnvSpec
    read: Observations
    actions: ActionMap


class GymnasiumEnv(CountedEnv):
    """`num_envs` instances of a Gymnasium environment, one agent each; see `trainer.environments.VectorEnv`."""

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        seed: int = 0,
        frame_skip: int = 1,
        first_index: int = 0,
        args: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Makes the instances; `render_mode` as `gymnasium.make` takes it.

        Raises:
            ConfigError: there is no such environment, a package that it needs is missing, its spaces are not ours, or
                it does not take the arguments.
        """
        args = args or {}
        spec, read, actions = describe(name, args)
        super().__init__(spec, num_envs, seed)
        with one_line(name, args):
            if render_mode is not None:
                _require_render_mode(name, args, render_mode)
            self.instances = Instances(
                maker(name, args, render_mode),
                num_envs,
                name=name,
                read=read,
                actions=actions,
                frame_skip=frame_skip,
                first_index=first_index,
            )

    def _reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        self.instances.reset(seed, observations)

    def _step(self, actions: npt.NDArray[Any], out: Rows) -> None:
        self.instances.step(actions, out)

    @property
    def render_fps(self) -> float:
        """Frames per second that the environment wants to be shown at; 0 where it gives none."""
        return frames_per_second(self.instances.envs[0])

    def render(self) -> Any:
        """Returns what the first instance shows, in the `render_mode` that was asked for.

        Raises:
            ConfigError: it cannot: a package is missing.
        """
        with one_line(self.spec.name, {}):
            return self.instances.envs[0].render()

    def close(self) -> None:
        """Ends the instances."""
        self.instances.close()


_KNOWN: dict[str, Kind] = {}  # by name and arguments: asking an environment for its spaces takes a while


def describe(name: str, args: Mapping[str, Any]) -> Kind:
    """Returns the description of `gym:ID` and how its spaces become ours. Makes one instance to ask it.

    The score is the return. The environment counts as solved at the threshold in Gymnasium's registry; without a
    threshold it never does.

    Raises:
        ConfigError: there is no such environment, a package that it needs is missing, its spaces are not ours, or it
            does not take the arguments.
    """
    key = json.dumps([name, args], sort_keys=True)
    if key not in _KNOWN:
        _KNOWN[key] = _describe(name, args)
    return _KNOWN[key]


def _describe(name: str, args: Mapping[str, Any]) -> Kind:
    with one_line(name, args):
        env = maker(name, args)()
        try:
            arguments.check_reset(env, name, "seed", "options")
            read, actions = Observations(env.observation_space), actions_of(env.action_space)
            registered = env.spec
        finally:
            env.close()
    assert registered is not None
    threshold, frames = registered.reward_threshold, registered.max_episode_steps
    spec = described(
        name,
        f"{registered.id} of Gymnasium",
        read,
        actions,
        solved_score=math.inf if threshold is None else float(threshold),
        max_episode_steps=frames or 0,
    )
    return Kind(spec, read, actions)


def maker(name: str, args: Mapping[str, Any], render_mode: str | None = None) -> Callable[[], Any]:
    """Returns what makes one instance, as the trainer uses it. It can be called under `one_line` alone."""
    kwargs = {**args, **({} if render_mode is None else {"render_mode": render_mode})}

    def make() -> Any:
        own = copy.deepcopy(kwargs)  # an environment may change its lists and tables
        env = gymnasium.make(_id(name), disable_env_checker=True, **own)
        if type(env.unwrapped).__module__.partition(".")[0] == "minigrid":
            from . import minigrid

            return minigrid.as_planes(env)
        return env

    return make


def _require_render_mode(name: str, args: Mapping[str, Any], render_mode: str) -> None:
    env = gymnasium.make(_id(name), disable_env_checker=True, **args)
    known = env.metadata.get("render_modes", [])
    env.close()
    if render_mode not in known:
        raise ConfigError(f"it has no render mode '{render_mode}', only: {', '.join(known) or 'none'}")


def _id(name: str) -> str:
    return name.partition(":")[2]


@contextlib.contextmanager
def one_line(name: str, args: Mapping[str, Any]) -> Iterator[None]:
    """Turns any error while an environment is made into a ConfigError of one line that names the environment."""
    find_beside_us()  # for an ID with a module that lies in the working directory
    try:
        _import_package(name)
        takes = _entry_point(name)
        _say_mujocos_warnings_once()
        if takes is not None:
            arguments.check({k: v for k, v in args.items() if k != "max_episode_steps"}, takes, name, ours=_OURS)
        with arguments.refusals(args, takes or (lambda: None), name):
            yield
    except MemoryError:
        raise
    except RAISED as error:  # the user's module, or an environment, may raise anything
        known = isinstance(error, gymnasium.error.Error | TrainerError)
        text = " ".join(str(error).split()) if known else in_words(error)
        if isinstance(error, TrainerError) and (
            not isinstance(error, ConfigError) or text.startswith(("env.args", "cannot make", f"'{name}'"))
        ):
            raise
        missing = isinstance(error, gymnasium.error.DependencyNotInstalled | ModuleNotFoundError)
        extra = next((extra for word, extra in _EXTRAS.items() if missing and word in text.lower()), None)
        if extra and "protein-sweep" not in text:
            text = f"{_THEIR_REMEDY.sub('', text)}: pip install 'protein-sweep[{extra}]'"
        raise ConfigError(f"cannot make '{name}': {text}") from error


def frames_per_second(env: Any) -> float:
    """Returns the frames per second that an environment wants to be shown at; 0 where it gives none."""
    return float(env.metadata.get("render_fps") or 0.0)


def is_atari(name: str) -> bool:
    """Whether `atari` makes the environment: a game that is seen as a picture. Raises `ConfigError` without ale-py."""
    if not _id(name).startswith("ALE/"):
        return False
    _import_package(name)
    registered = gymnasium.registry.get(_id(name))
    return registered is None or registered.kwargs.get("obs_type", "rgb") == "rgb"


def _import_package(name: str) -> None:
    """Imports what registers the environment, where that is a package that we know."""
    for prefix, (package, extra) in _PACKAGES.items():
        if not _id(name).startswith(prefix):
            continue
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"cannot make '{name}': {error.name} is not installed: pip install 'protein-sweep[{extra}]'"
            ) from error


def _entry_point(name: str) -> Callable[..., Any] | None:
    """Returns the class or function that makes an environment; None where it is not registered, or is no Python."""
    module, colon, _ = _id(name).rpartition(":")
    if colon:
        importlib.import_module(module)
    registered = gymnasium.registry.get(_id(name).rpartition(":")[2])
    entry_point = None if registered is None else registered.entry_point
    if registered is not None and entry_point is None and registered.vector_entry_point is not None:
        raise ConfigError(
            "it is registered for gymnasium.make_vec alone: register one environment of it, too, by entry_point, or "
            "write a batch of your own around make_vec and name it python:MODULE:CLASS (docs/environments.md)"
        )
    if isinstance(entry_point, str):
        with warnings.catch_warnings():
            # Box2D's module is made by SWIG, whose types bring this warning. As an error it ends the whole process.
            warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
            made: Callable[..., Any] = gymnasium.envs.registration.load_env_creator(entry_point)
        return made
    return entry_point


def _say_mujocos_warnings_once() -> None:
    """Lets MuJoCo, where it is loaded, give each of its warnings once.

    From 3.15 on it warns of Gymnasium's own models at every instance, on standard error and into a file MUJOCO_LOG.TXT
    in the working directory: 160 times before a run of HalfCheetah begins.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None:
        mujoco.set_mju_user_warning(_say_once)


@functools.cache
def _say_once(warning: str) -> None:
    print(f"MuJoCo: {' '.join(warning.split())}", file=sys.stderr)
