"""One step of the optimiser, in micro-batches: forward and backward passes whose gradients add up, then the step.

The loss of a step is the mean over all its tokens, of all micro-batches and processes. A micro-batch of `b` of the `R`
rows enters with weight b / R. So the gradient is that of the whole batch at once, to rounding, and so is its sum over
the processes, which runs beside the last backward pass.

The blocks' matrices are Muon's, or AdamW's with the same step size. The embedding, the positions, the head and all
vectors are AdamW's, with a step size of their own. Queries, keys and values lie above each other in one matrix, and so
do the two halves of a gated layer. Muon orthogonalises each of them alone.

Source: sums beside the backward pass: Li et al. 2020, "PyTorch distributed: experiences on accelerating data parallel
training", section 3.2.3; Micikevicius et al. 2018, "Mixed precision training", for the precisions below float32.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from ..machine.distributed import World
from ..machine.graphs import Graph, Recorder
from ..machine.precision import Arithmetic, autocast, has_bf16_products
from ..machine.stopwatch import Stopwatch
from ..optim.muon import Muon
from ..optim.optimizer import AdamW, FlatWeights, Optimizer, Part
from ..progress import rate_share
from .config import ModelConfig, TrainConfig
from .micro_batch import free_bytes, reset_peak
from .model import GPT

PART_BYTES = 4 * 2**20  # of the gradients: large enough that the fixed cost of a sum, some 0.1 ms, does not count
LARGEST_GRAPH = 0.1  # of the free memory
FAST_WIDTH = 32  # from here on oneDNN's products are faster; measured on AMD EPYC (Zen 5), torch 2.13
Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


class Updates:
    """Owns the gradients and the `optimizer`, whose first step size is that of the blocks' matrices."""

    def __init__(
        self,
        model: GPT,
        config: TrainConfig,
        *,
        device: torch.device,
        precision: str,
        world: World,
        stopwatch: Stopwatch,
    ) -> None:
        """Moves the network's parameters into one vector: see `FlatWeights`.

        Args:
            model: on its final device.
            config: the settings.
            device: where the network is.
            precision: of the matrix products; not `auto`.
            world: the processes that train together.
            stopwatch: where the time is booked.
        """
        self._config, self._device, self._precision = config, device, precision
        self._switch = stopwatch.switch
        self._flat = FlatWeights(model)
        self._sums = GradientSums(list(model.parameters()), self._flat.gradients, world)
        self.optimizer = make_optimizer(model, self._flat.weights, config, precision)
        self._eager: Loss = model.loss
        self._loss: Loss = model.loss
        # Of the passes, by rows, tokens, documents or not, and weight.
        self._graphs: dict[tuple[int, int, bool, float], Graph] = {}
        forbidden = "several processes share the gradients" if world.size > 1 else ""
        if precision == "fp16":
            forbidden = "fp16 changes the scale of its loss"
        self.recorder = Recorder(device, config.graphs, forbidden=forbidden)
        self.compiled = False

    def begin(self) -> None:
        """Begins a step: no gradient yet, whatever was added before."""
        self._switch("optimizer")
        self._flat.clear()

    def add(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        documents: torch.Tensor | None,
        *,
        weight: float,
        last: bool,
    ) -> torch.Tensor:
        """Adds the gradient of one micro-batch.

        Args:
            inputs: `b x T` of int64, on the device; so are the next two.
            targets: `b x T`.
            documents: `b x T`; None: see `GPT`.
            weight: the share of these rows in the step's.
            last: whether it is the step's last micro-batch on this process.

        Returns:
            the weighted mean loss in nats a token, without gradient, on the device.
        """
        graph = self._graphs.get((*inputs.shape, documents is not None, weight))
        if graph is not None:
            self._switch("backward")  # and forward
            recorded: torch.Tensor = graph(inputs, targets, documents)
            return recorded
        self._switch("forward")
        loss = self._weighted_loss(inputs, targets, documents, weight)
        self._switch("backward")
        if last:
            self._sums.begin()
        torch.autograd.backward(self.optimizer.scaled(loss))
        return loss.detach()

    def _weighted_loss(
        self, inputs: torch.Tensor, targets: torch.Tensor, documents: torch.Tensor | None, weight: float
    ) -> torch.Tensor:
        with autocast(self._device, self._precision):
            return self._loss(inputs, targets, documents) * weight

    def step(self, progress: float) -> torch.Tensor:
        """Takes the step, and returns the gradient's norm before clipping: 0 where the step was skipped (`fp16`).

        `progress`: the fraction of the run, in [0, 1].
        """
        self._switch("gradient_sum")
        self._sums.finish()
        self._switch("optimizer")
        self.optimizer.set_progress(progress)
        return self.optimizer.step(self._config.max_grad_norm)

    def warm(self, length: int, rows: int = 1) -> None:
        """Makes both passes once, of rows of `length` tokens: what torch loads then is loaded before the clock."""
        inputs, targets, documents = self._example(rows, length)
        for of_documents in (None, documents):
            self.add(inputs, targets, of_documents, weight=1.0, last=False)
        self._flat.clear()

    def _example(self, rows: int, length: int) -> list[torch.Tensor]:
        """Returns inputs, targets and documents: three tensors, because one that comes twice is compiled again."""
        return [torch.zeros(rows, length, dtype=torch.int64, device=self._device) for _ in range(3)]

    def compile(self, shapes: Iterable[tuple[int, int]]) -> float:
        """Compiles the loss and its backward pass; returns the seconds that it took.

        Every shape that the run will need is tried here: a new one would compile again, on the run's clock. Where it
        fails (no compiler, an unsupported system), training continues uncompiled, and `compiled` stays False.

        Args:
            shapes: rows and tokens of every micro-batch.
        """
        began = time.perf_counter()
        try:
            self._loss = torch.compile(self._eager, dynamic=False)
            for rows, length in sorted(set(shapes)):
                self.warm(length, rows)
            self.compiled = True
        except Exception as error:  # torch.compile raises whatever its many parts do
            logging.getLogger(__name__).warning("torch.compile failed, going on without it: %s", error)
            self._loss = self._eager
        self._flat.clear()
        return time.perf_counter() - began

    def record(self, parts: Iterable[tuple[int, int, float]]) -> None:
        """Records the passes of each kind of micro-batch as CUDA graphs, where `recorder` records.

        Not passes that need much memory: a graph keeps it, and their kernels are long. What is not recorded is computed
        as usual, to the same results.

        Args:
            parts: rows, tokens and weight of every micro-batch.
        """
        kinds, device = sorted(set(parts)), self._device
        if self.recorder.reason:
            return
        reset_peak(device)
        free = free_bytes(device)
        rows, length, _ = kinds[-1]
        self.warm(length, rows)
        if free - free_bytes(device) > LARGEST_GRAPH * free:
            self.recorder.reason = f"a pass needs over {LARGEST_GRAPH:.0%} of the free memory"
            return
        for rows, length, weight in kinds:
            inputs, targets, documents = self._example(rows, length)

            def compute(*given: torch.Tensor, weight: float = weight) -> torch.Tensor:
                loss = self._weighted_loss(given[0], given[1], given[2], weight)
                torch.autograd.backward(loss)
                return loss.detach()

            for examples in ((inputs, targets, None), (inputs, targets, documents)):
                graph = self.recorder.record("the forward and backward passes", compute, examples)
                if graph is None:  # the others would need as much
                    self._graphs.clear()
                    self._flat.clear()
                    return
                self._graphs[rows, length, examples[2] is not None, weight] = graph
        self._flat.clear()


class GradientSums:
    """Sums `gradients` over all processes: `begin` before the last backward pass of a step, `finish` after it.

    A backward pass fills the vector from its end to its beginning. So the vector is cut into parts of some megabytes.
    As soon as all gradients of a part are there, its sum over the processes begins, while the backward pass goes on.
    All processes begin the sums in the same order.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        gradients: torch.Tensor,
        world: World,
        *,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """`gradients` holds the gradients of all `parameters`, one after the other."""
        self._gradients, self._world = gradients, world
        self._parts: list[slice] = []  # in the order in which they are filled
        self._sizes: list[int] = []  # parameters in each
        self._left: list[int] = []  # of them, whose gradient is missing
        self._next = 0  # the part whose sum begins next
        self._waits: list[Callable[[], None]] = []
        self._active = False
        if world.size == 1:
            return
        end = first = gradients.numel()
        members: list[nn.Parameter] = []
        for number, parameter in reversed(list(enumerate(parameters))):
            first -= parameter.numel()
            members.append(parameter)
            if (end - first) * gradients.element_size() >= part_bytes or number == 0:
                part = len(self._parts)
                for member in members:
                    member.register_post_accumulate_grad_hook(lambda _, part=part: self._filled(part))
                self._parts.append(slice(first, end))
                self._sizes.append(len(members))
                end, members = first, []

    def begin(self) -> None:
        """The next backward pass is the last one before the sums."""
        self._left, self._next, self._waits = list(self._sizes), 0, []
        self._active = bool(self._parts)

    def finish(self) -> None:
        """Waits until `gradients` are the sums. Raises LostProcessError where another process does not answer."""
        self._left = [0] * len(self._parts)  # a parameter that the loss does not depend on gets no gradient
        self._begin_sums()
        self._active = False
        for wait in self._waits:
            wait()

    def _filled(self, part: int) -> None:
        if self._active:
            self._left[part] -= 1
            self._begin_sums()

    def _begin_sums(self) -> None:
        while self._active and self._next < len(self._parts) and self._left[self._next] <= 0:
            self._waits.append(self._world.sum_later_(self._gradients[self._parts[self._next]]))
            self._next += 1


def make_optimizer(model: GPT, weights: nn.Parameter, config: TrainConfig, precision: str = "fp32") -> Optimizer:
    """Returns the optimiser of a network whose parameters are in one vector, `weights`.

    The blocks' matrices come first, those that stack as many matrices together. The optimiser's `learning_rate` is
    theirs.
    """
    betas, eps, decay = (config.beta1, config.beta2), config.adam_eps, config.weight_decay
    stacks: dict[int, list[nn.Parameter]] = {}
    for name, parameter in model.blocks.named_parameters():
        if parameter.ndim == 2:
            stacks.setdefault(_stacked(name, model) if config.optimizer == "muon" else 1, []).append(parameter)
    parts: list[Part] = []
    for stacked, matrices in sorted(stacks.items()):
        rate, count = config.learning_rate, [stacked] * len(matrices)
        if config.optimizer == "muon":
            parts.append(Muon(matrices, learning_rate=rate, weight_decay=decay, momentum=betas[0], stacked=count))
        else:
            parts.append(AdamW(matrices, learning_rate=rate, weight_decay=decay, betas=betas, eps=eps))
    chosen = {id(parameter) for matrices in stacks.values() for parameter in matrices}
    rest, rate = [p for p in model.parameters() if id(p) not in chosen], config.embedding_learning_rate
    parts.append(AdamW(rest, learning_rate=rate, weight_decay=decay, betas=betas, eps=eps))
    final = config.final_fraction
    return Optimizer(weights, parts, lambda progress: rate_share(config, progress, final), precision=precision)


def _stacked(name: str, model: GPT) -> int:
    """Returns how many matrices a block's parameter stacks."""
    if name.endswith("attention.input.weight"):
        return 3
    return 2 if name.endswith("feed_forward.input.weight") and model.design.activation == "swiglu" else 1


def resolve_precision(precision: str, device: torch.device) -> str:
    """Returns what `auto` means on this kind of device; any other precision is returned as it is.

    On a CPU with products of bfloat16 these are faster at every width: on one core of an AMD EPYC (Zen 5), 1.07
    times as many tokens a second as in float32 at a width of 32, 1.2 at 64, 1.4 at 128. The loss is the same: see
    docs/benchmarks-language.md.
    """
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "tf32"
    return "bf16" if device.type == "cpu" and has_bf16_products(device) else "fp32"


def prepare(arithmetic: Arithmetic, config: ModelConfig) -> None:
    """Sets threads and kernels on the CPU for the width of a network.

    Its products are those of thousands of tokens, so threads pay at any width that is used.
    """
    arithmetic.choose(threaded=True, fast=config.width >= FAST_WIDTH)
