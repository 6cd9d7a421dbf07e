"""Computations that a GPU is given in one launch: recorded once as a CUDA graph, and replayed.

The kernels of a small network take less time than the host needs to launch them one by one. A graph holds them with
their addresses. They are the same kernels, so the results are the same, bit for bit. Whatever a graph reads or changes,
such as weights, gradients and buffers, must stay where it lies in memory.

Whether a run records is one setting, `train.graphs`, and one rule: `Recorder`. What cannot be recorded is computed as
usual.

On the CPU there is a stand-in, for tests and for counting (`standing_in`). It records the very calls of PyTorch's
operators and replays them into the same memory. It refuses what a graph cannot hold: results that the host reads,
shapes that depend on data, and tensors that are new at each call. `Launches` counts what a host would launch.

Source: "CUDA C++ Programming Guide", CUDA Graphs; `torch.cuda.CUDAGraph` and its constraints.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from ..errors import ConfigError
from ..kernels import by_torch
from ..settings import Graphs

Compute = Callable[..., Any]  # returns tensors, in lists or dicts as it likes, or None


class Graph:
    """A recorded computation. `inputs` are its own, in fixed places, and so is `output`, which each replay overwrites.

    A computation without inputs reads and writes tensors that the caller keeps in their places.
    """

    inputs: Sequence[torch.Tensor | None] = ()
    output: Any = None

    def replay(self) -> Any:
        """Computes with what lies in `inputs` and wherever else it reads; returns `output`. The host does not wait."""
        raise NotImplementedError

    def __call__(self, *inputs: torch.Tensor | None) -> Any:
        """Computes for these inputs, which are copied; returns a copy of the output, the caller's own."""
        for own, given in zip(self.inputs, inputs, strict=True):
            if own is not None and given is not None:
                own.copy_(given, non_blocking=True)
        return tree_map_only(torch.Tensor, torch.clone, self.replay())


class CudaGraph(Graph):
    """A CUDA graph."""

    _broken_off: ClassVar[list[torch.cuda.CUDAGraph]] = []

    def __init__(
        self,
        compute: Compute,
        inputs: Sequence[torch.Tensor | None],
        generators: Sequence[torch.Generator],
        device: torch.device,
        latest: "CudaGraph | None",
    ) -> None:
        """See `Recorder.record`. `latest`: a graph whose working memory and stream this one uses, too."""
        self.inputs = inputs
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        pool = None if latest is None else latest._graph.pool()
        with torch.cuda.device(device):
            usual = torch.cuda.current_stream()
            # On this very device: what another one's stream is given is not recorded.
            self._stream: torch.cuda.Stream = torch.cuda.Stream() if latest is None else latest._stream
            self._stream.wait_stream(usual)
            try:
                with torch.cuda.stream(self._stream):  # also brings back the usual one after an error
                    compute(*inputs)  # as usual, so that all that it needs is loaded
                    with self._recording(self._graph, pool):
                        self.output = compute(*inputs)
            except Exception:
                self._give_up(generators)
                raise
            finally:
                usual.wait_stream(self._stream)  # which may still be writing what is to be brought back

    def replay(self) -> Any:
        self._graph.replay()
        return self.output

    def _recording(self, graph: torch.cuda.CUDAGraph, pool: Any = None) -> contextlib.AbstractContextManager[None]:
        # Other threads may use the device meanwhile.
        return torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local")

    def _give_up(self, generators: Sequence[torch.Generator]) -> None:
        """Brings generators back, those of earlier graphs, too: they refuse to draw until a recording has ended well.

        So another one, of nothing that matters, is made. What broke off is kept: PyTorch's allocator may still ask it.
        """
        self._broken_off.append(self._graph)
        other = torch.cuda.CUDAGraph()
        for generator in generators:
            other.register_generator_state(generator)
        with contextlib.suppress(RuntimeError), self._recording(other):  # unless the device has failed
            torch.zeros(1, device=self._stream.device)


class StandIn(Graph):
    """What a CUDA graph would do, on the CPU: the same operators on the same memory, at each replay."""

    def __init__(
        self,
        compute: Compute,
        inputs: Sequence[torch.Tensor | None],
        generators: Sequence[torch.Generator],
        device: torch.device,
        latest: "StandIn | None",
    ) -> None:
        """See `Recorder.record`."""
        del generators, device, latest
        self.inputs = inputs
        with by_torch():
            warm_up = _Recording(known=None)
            with warm_up, _NoHostReads():
                compute(*inputs)
            recording = _Recording(known=warm_up)
            with recording, _NoHostReads():
                self.output = compute(*inputs)
        self._calls = recording.calls
        self._outside = recording.outside()

    def replay(self) -> Any:
        """See `Graph.replay`. Raises RuntimeError where memory that it reads has been freed since."""
        for storage, own in self._outside:
            if _users(storage) <= own:
                raise RuntimeError("a recorded computation uses a tensor that is gone: keep it in its place")
        with _disable_current_modes(), torch.no_grad(), torch.autocast("cpu", enabled=False):
            for call in self._calls:
                call()
        Launches.count_one()
        return self.output


class _Watch(TorchDispatchMode):
    """Is given every call of an operator in its context."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch loads its compiler for it, which takes seconds


class Launches(_Watch):
    """A context that counts what the host would launch on a GPU: `number`, and by operator in `by_name`.

    An operator counts as one launch, unless it only looks at memory or allocates it. So does a replay of a stand-in.
    Operators on the host's memory count, too, because on a CPU there is no other.
    """

    _active: ClassVar[list["Launches"]] = []

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.by_name: dict[str, int] = {}

    @property
    def number(self) -> int:
        return sum(self.by_name.values())

    @classmethod
    def count_one(cls) -> None:
        """Counts one replay."""
        for active in cls._active:
            active._add("graph")

    def __enter__(self) -> "Launches":
        self._active.append(self)
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __exit__(self, *raised: object) -> None:
        self._active.remove(self)
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if _launches(func, result, (args, kwargs)):
            self._add(str(func))
        return result

    def _add(self, name: str) -> None:
        self.by_name[name] = self.by_name.get(name, 0) + 1


class Recorder:
    """Records the computations of one part of a run, or tells why it does not: the rule of `train.graphs`.

    `auto` records on CUDA, unless something in the part forbids it. Where recording fails, for memory or whatever
    reason, one line says so, and the part is computed as usual. `on` does the same, but a device without graphs and a
    failure are errors. `off` never records. Graphs of one recorder share working memory, so they must never run at the
    same time.

    Attributes:
        reason: why nothing is recorded; "" where it is.
        failures: what could not be recorded, in a line each.
    """

    def __init__(self, device: torch.device, setting: Graphs = "auto", *, forbidden: str = "") -> None:
        """`forbidden`: what else forbids recording in this part of this run, in words.

        Raises:
            ConfigError: `setting` is `on`, and the device has no graphs.
        """
        self._device, self._must = device, setting == "on"
        self._kind: type[CudaGraph | StandIn] = CudaGraph if device.type == "cuda" else StandIn
        self._latest: Any = None
        self.failures: list[str] = []
        missing = _missing(device)
        if self._must and missing:
            raise ConfigError(f"train.graphs cannot be 'on': {missing}: use 'auto'")
        self.reason = "train.graphs is off" if setting == "off" else missing or forbidden

    def record(
        self,
        what: str,
        compute: Compute,
        examples: Sequence[torch.Tensor | None] = (),
        *,
        keeps: Sequence[torch.Tensor] = (),
        generators: Sequence[torch.Generator] = (),
    ) -> Graph | None:
        """Returns the recorded computation; None where it is to be computed as usual.

        It is computed before, once or twice, so that all that it needs is loaded. What it writes is then written.

        Args:
            what: it computes, for the line that tells of a failure.
            compute: maps tensors like the examples to tensors or None. It must not wait for the device, as a stopwatch
                may. With autocast, its memory of converted weights must be off, because it is emptied in between.
            examples: inputs of the right shapes, which are cloned; None stays None.
            keeps: what is to be afterwards as it was before, such as weights and a recurrent state.
            generators: from which it draws; they, too, are as before.

        Raises:
            ConfigError: it cannot be recorded, with `train.graphs` `on`.
        """
        if self.reason:
            return None
        graph: Graph | None = None
        error = ""
        before: list[torch.Tensor] = []
        states = [generator.get_state() for generator in generators]
        try:
            inputs = [None if example is None else example.clone() for example in examples]
            before = [kept.detach().clone() for kept in keeps]
            graph = self._latest = self._kind(compute, inputs, generators, self._device, self._latest)
        except Exception as raised:  # of the device, of its memory, of what cannot be recorded
            error = f"cannot record {what} as a graph, going on without it: {_first_line(raised)}"
            if len(before) < len(keeps):  # nothing was computed
                keeps, before = (), []
        with torch.no_grad():
            for kept, value in zip(keeps, before, strict=True):
                kept.copy_(value)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        if error:
            self._failed(error)
        return graph

    def _failed(self, line: str) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if self._must:
            raise ConfigError(f"train.graphs cannot be 'on': {line.replace(', going on without it', '')}: use 'auto'")
        self.failures.append(line)
        logging.getLogger(__name__).warning(line)


def in_words(recorders: Mapping[str, Recorder]) -> str:
    """Returns which parts of a run are recorded, and why others are not, for the event of its start."""
    recorded = [part for part, recorder in recorders.items() if not recorder.reason and not recorder.failures]
    others: dict[str, list[str]] = {}
    for part, recorder in recorders.items():
        if part not in recorded:
            others.setdefault(recorder.reason or recorder.failures[0], []).append(part)
    if not recorded and len(others) == 1:
        return f"none: {next(iter(others))}"
    return "; ".join([", ".join(recorded) or "none", *(f"not {' and '.join(o)}: {why}" for why, o in others.items())])


_standing_in = 0  # how many `standing_in` are active


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """Inside, a CPU counts as a device with memory of its own and with graphs, and all threads use torch's kernels."""
    global _standing_in
    _standing_in += 1
    try:
        with by_torch():
            yield
    finally:
        _standing_in -= 1


def is_apart(device: torch.device) -> bool:
    """Whether a network acts on this device in launches of its own: there are graphs there, whether recorded or not."""
    return not _missing(device)


def _missing(device: torch.device) -> str:
    """Returns why there are no graphs on a device; "" where there are."""
    if device.type == "cuda" or (device.type == "cpu" and _standing_in):
        return ""
    return f"{'a CPU' if device.type == 'cpu' else device.type} has no CUDA graphs"


def _first_line(error: BaseException) -> str:
    if isinstance(error, torch.AcceleratorError) and error.__context__ is not None:
        error = error.__context__  # a recording that broke off ends with an error; the one before it says why
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


class _Recording(_Watch):
    """Computes as usual and keeps every call of an operator that does something.

    `known`: the recording of the same computation before, whose tensors may be used.
    """

    def __init__(self, known: "_Recording | None") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = known
        self.calls: list[Callable[[], None]] = []
        self._made: dict[int, torch.Tensor] = {}  # by storage; they are kept, so that none gets an earlier one's place
        self._found: dict[int, tuple[torch.Tensor, int]] = {}  # from outside, and how often it is held here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        _refuse(func, args)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        for tensor in given:
            self._require_known(tensor)
        result = func(*args, **kwargs)
        seen = {_storage(tensor) for tensor in given}
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        fresh = [leaf.detach() for leaf in leaves if _storage(leaf) not in seen]
        for tensor in fresh:
            self._made[_storage(tensor)] = tensor
        if _launches(func, result, (args, kwargs)):
            held_args, held_kwargs = tree_map_only(torch.Tensor, self._held, (args, kwargs))
            self.calls.append(functools.partial(_again, func, held_args, held_kwargs, fresh))
        return result

    def outside(self) -> list[tuple[torch.UntypedStorage, int]]:
        """Returns the memory that was there before, and how often its users are then in the recording."""
        return [(tensor.untyped_storage(), times + 1) for tensor, times in self._found.values()]

    def _held(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of this recording's own on the same memory."""
        own = tensor.detach()
        key = _storage(tensor)
        if key in self._found:
            self._found[key] = self._found[key][0], self._found[key][1] + 1
        return own

    def _require_known(self, tensor: torch.Tensor) -> None:
        key = _storage(tensor)
        if key in self._made or key in self._found:
            return
        if self._known is not None and key not in self._known._made and key not in self._known._found:
            raise RuntimeError(f"a tensor of shape {tuple(tensor.shape)} is new at each call: keep it in its place")
        self._found[key] = tensor.detach(), 0


class _NoHostReads(TorchFunctionMode):
    """Refuses what reads a tensor on the host without an operator."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("numpy", "tolist", "cpu", "__array__", "__dlpack__"):
            raise RuntimeError(f"the host reads a tensor with {func.__name__}(), which waits for the device")
        return func(*args, **(kwargs or {}))


def _refuse(func: Any, args: Any) -> None:
    """Raises RuntimeError for an operator that no graph can hold."""
    name = func.overloadpacket.__name__
    if name.rstrip("_") in ("index", "index_put", "_unsafe_index", "_index_put_impl"):
        indices = [index for index in args[1] if index is not None]
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
            raise RuntimeError(f"{func} with a mask has a shape that depends on data: use torch.where or masked_fill")
    elif torch.Tag.data_dependent_output in func.tags:
        raise RuntimeError(f"{func} hands a result to the host, which waits for the device")
    elif torch.Tag.dynamic_output_shape in func.tags:
        raise RuntimeError(f"{func} has a shape that depends on data")
    elif name == "lift_fresh":
        raise RuntimeError("a tensor is made from numbers of the host, which waits for the device: make it before")


def _launches(func: Any, result: Any, given: Any) -> bool:
    """Whether a call of an operator would launch something: it computes, and not nothing."""
    name = func.overloadpacket.__name__
    if func.is_view or name in _NO_LAUNCH:
        return False
    tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if not tensors and func._schema.is_mutable:  # such as _foreach_add_
        tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    return any(tensor.numel() for tensor in tensors)


_NO_LAUNCH = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "_reshape_alias"}
    | {"lift_fresh", "detach", "alias", "resize_", "set_", "record_stream"}
)


def _again(func: Any, args: Any, kwargs: Any, outputs: Sequence[torch.Tensor]) -> None:
    """Calls an operator again, into the memory that its first call has made."""
    result = func(*args, **kwargs)
    if outputs:
        given = {_storage(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and _storage(leaf) not in given]
        for output, tensor in zip(outputs, made, strict=True):
            output.copy_(tensor)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _users(storage: torch.UntypedStorage) -> int:
    """Returns how many tensors hold this memory, and this object with them."""
    return int(torch._C._storage_Use_Count(storage._cdata))
