"""Proximal policy optimisation: the update. Its loss and the loss's gradient are in `protein.trainer.ppo.loss`.

Notation: a batch of `N` segments of `T` steps; a minibatch of `M` of them, `B = T * M` samples; r = pi_now(action) /
pi_old(action), where pi_old took the action.

A policy without memory learns from single samples: each is a segment of one step here. Samples that follow each other
are alike, and a minibatch of few long segments has a noisy gradient.

With several processes, each minibatch is divided: every process uses segments of its own, chosen by the same random
draw. The gradient, the advantages' scale and the figures come from sums over the processes, so they are those of the
whole.

With `train.overlap` the batch is one update old. One more forward pass gives the ratios r of the policy as it is then,
and V-trace with these its advantages (`protein.trainer.ppo.loss`).

With a target KL, a pass after whose last minibatch the policy has moved further than that is the update's last one.

On a GPU the advantages, each minibatch from its gather to the optimiser's step, and the figures are recorded
(`protein.trainer.machine.graphs`), for the shape of a whole iteration: one launch each in place of hundreds. They read
a batch in buffers of their own (`Work`). What changes from update to update, such as the step size and the weight of
the entropy bonus, is on the device. `why_not_recorded` has the rule for what is computed as usual.

Source: Schulman et al. 2017, "Proximal policy optimization algorithms"; for V-trace: Espeholt et al. 2018, "IMPALA",
section 4.1; initial settings: Huang et al. 2022, "The 37 implementation details of PPO"; the entropy bonus that adapts:
the dual ascent on a constraint of entropy in Haarnoja et al. 2018, "Soft actor-critic algorithms and applications",
section 5, here with steps of bounded size in the logarithm, because an update of PPO comes seldom.
"""

import contextlib
import dataclasses
import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ..config import TrainConfig
from ..errors import DivergedError
from ..kernels import Backward, backward_from
from ..machine.cuda import to_device
from ..machine.distributed import ALONE, World
from ..machine.graphs import Graph, Recorder
from ..machine.precision import autocast, update_precision
from ..machine.stopwatch import Stopwatch
from ..model.policy import Policy
from ..optim.muon import Muon
from ..optim.optimizer import AdamW, FlatWeights, Optimizer, Part
from ..progress import rate_share
from .loss import Coefficients, Minibatch, advantages_and_returns, loss_gradient, ppo_loss, spread_and_mean
from .rollout import Batch

RATE = 0.2  # at most a factor of 1.22 an update: from the usual .01 to `LEAST` or `MOST` in 25 to 46 of them
LEAST, MOST = 1e-6, 1.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Work:
    """A batch and what an update makes of it. Where it is recorded, all of it stays in its place."""

    batch: Batch
    drawn: Batch  # the same samples, as they are drawn
    size: int  # segments of a minibatch
    norms: torch.Tensor  # sum of the gradients' norms
    # Of the samples as they are drawn, `T x N`: advantages, the value's targets, what the ratios are held against.
    gains: torch.Tensor
    returns: torch.Tensor
    logprobs: torch.Tensor
    graphs: dict[object, Graph] = dataclasses.field(default_factory=dict)

    def computed(self, key: object, compute: Callable[..., Any], *inputs: torch.Tensor) -> Any:
        """Returns what `compute` makes of the inputs: by replay, where it is recorded, in the recording's own place."""
        graph = self.graphs.get(key)
        if graph is None:
            return compute(*inputs)
        for own, given in zip(graph.inputs, inputs, strict=True):
            assert own is not None
            own.copy_(given, non_blocking=True)
        return graph.replay()


class PPO:
    """Carries out updates: owns the gradients, the `optimizer` and the shuffling."""

    def __init__(
        self,
        policy: Policy,
        config: TrainConfig,
        *,
        device: torch.device,
        generator: torch.Generator,
        stopwatch: Stopwatch,
        world: World = ALONE,
        recompute_logprobs: bool = False,
    ) -> None:
        """Moves the policy's parameters into one vector: see `FlatWeights`.

        Args:
            policy: on its final device.
            config: the settings.
            device: where the policy is.
            generator: shuffles; on the CPU, and the same in all processes.
            stopwatch: where the time of an update is booked.
            world: the processes that train together.
            recompute_logprobs: batches come from the same weights on another device, whose products round differently
                (TF32 in the third digit). Log-probabilities are computed here again, so that ratios begin at 1.
        """
        self._policy = policy
        self._config = config
        self._device = device
        self._generator = generator
        self._stopwatch = stopwatch
        self._world = world
        self._flat = FlatWeights(policy)
        self.optimizer = make_optimizer(policy, self._flat.weights, config)
        self._precision = update_precision(config)
        # With overlap the other thread may empty the memory of converted weights at any time. A layer that is used
        # several times would then have one copy or two, whose gradients round differently. Ours are used once.
        self._caches = not (config.overlap and policy.own is not None)
        self._recompute_logprobs = recompute_logprobs
        self.recorder = Recorder(device, config.graphs, forbidden=why_not_recorded(config, world))
        self._recorded: dict[object, Work] = {}  # by shape of the batch
        self._switch = stopwatch.switch
        # What is recorded reads the weight of the entropy bonus on the device.
        weight = config.ent_coef if self.recorder.reason else torch.zeros((), dtype=torch.float64, device=device)
        self._coefficients = Coefficients(clip=config.clip_coef, value=config.vf_coef, entropy=weight)
        self._entropy = EntropyBonus(config)
        self._compiled: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] | None = None

    def state(self) -> dict[str, torch.Tensor]:
        """Returns all that the next `update` depends on, apart from the weights."""
        return {"shuffle_generator": self._generator.get_state(), **self.optimizer.state(), **self._entropy.state()}

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continues from a `state`. Raises KeyError where something is missing, ValueError where it does not fit."""
        self._generator.set_state(state["shuffle_generator"])
        self.optimizer.set_state(state)
        self._entropy.set_state(state)

    @property
    def compiled(self) -> bool:
        """Whether the network's passes are."""
        return self._compiled is not None

    def compile(self, features: int, agents: int, horizons: Iterable[int]) -> float:
        """Compiles the network's forward and backward pass; returns the seconds that it took.

        Every shape that the run will need is tried here: a new one would compile again, on the run's clock. Where it
        fails (no compiler, an unsupported system), training continues uncompiled, and `compiled` stays False.

        Args:
            features: of an observation.
            agents: of this process.
            horizons: the steps of each iteration that is to come.
        """
        began = time.perf_counter()
        try:
            self._compiled = torch.compile(self._policy, dynamic=True)
            for steps, count in sorted(self._shapes(agents, horizons)):
                example = torch.zeros(steps, count, features, dtype=self._policy.observation_dtype, device=self._device)
                state = torch.zeros(count, self._policy.state_size, device=self._device)
                resets = torch.zeros(steps, count, dtype=torch.bool, device=self._device)
                output, backward = self._pass(example, state if self._policy.state_size else None, resets)
                backward(torch.zeros_like(output))
        except Exception as error:  # torch.compile raises whatever its many parts do
            logging.getLogger(__name__).warning("torch.compile failed, going on without it: %s", error)
            self._compiled = None
        self._stopwatch.reset()
        return time.perf_counter() - began

    def _shapes(self, agents: int, horizons: Iterable[int]) -> set[tuple[int, int]]:
        """Returns steps and segments of everything that a forward pass of an update of `agents` will be given."""
        shapes = set()
        for horizon in horizons:
            steps, segments = (horizon, agents) if self._policy.state_size else (1, horizon * agents)
            size = self._minibatch_segments(segments, steps)
            for whole in {size, segments % size} - {0}:
                parts = torch.empty(whole).tensor_split(self._config.accumulation_steps)
                shapes |= {(steps, len(part)) for part in parts if len(part)}
        return shapes

    def _minibatch_segments(self, segments: int, steps: int) -> int:
        """Returns how many of this process's segments make a minibatch."""
        return min(segments, max(1, self._config.minibatch_size // steps // self._world.size))

    @property
    def weights(self) -> torch.Tensor:
        """The vector of all the policy's parameters, as it changes."""
        return self._flat.weights.detach()

    def update(self, batch: Batch, progress: float, time_is_up: Callable[[], bool] = lambda: False) -> dict[str, float]:
        """Goes over the batch `update_epochs` times in minibatches; returns the figures of the last one.

        Leaves the stopwatch in `other`. Once `time_is_up()` it begins no further minibatch. Then the figures of the
        last one are missing.

        Raises:
            DivergedError: a gradient, the loss or a weight is not finite. It is looked at once per update.
        """
        config, switch = self._config, self._switch
        self.optimizer.set_progress(progress)
        entropy_weight = self._set_entropy_weight(progress)
        switch("copy")
        work = self._work(batch)
        terms: dict[str, torch.Tensor] = {}
        again = (self._recompute_logprobs or config.overlap) and not time_is_up()
        switch("advantage")
        prepared = work.computed(("advantages", again), lambda: self._prepare(work, again=again))
        work.gains, work.returns, work.logprobs = prepared
        passes = 0
        for epoch in range(config.update_epochs):
            if epoch and time_is_up():
                break
            terms, passes = {}, passes + 1
            order = torch.randperm(work.drawn.segments, generator=self._generator)
            minibatches = to_device(order, self._device).split(work.size)
            for index, chosen in enumerate(minibatches):
                if time_is_up():
                    break
                wanted = self._last_epoch(epoch) and index == len(minibatches) - 1
                switch("update_backward")  # and all the rest of it, where it is recorded
                compute = functools.partial(self._step, work, wanted=wanted)
                terms = work.computed((len(chosen), wanted), compute, chosen)
            if config.target_kl and terms and float(self._world.sum_(terms["approx_kl"].clone())) > config.target_kl:
                break
        switch("other")
        summed = self._world.sum_(torch.stack(list(terms.values()))) if terms else work.norms.new_empty(0)
        figures = torch.cat([summed, work.computed("figures", lambda: self._figures(work))]).tolist()
        if self.optimizer.exhausted or not all(map(math.isfinite, figures)):
            raise DivergedError("a loss, gradient or weight is not finite: lower train.learning_rate or max_grad_norm")
        found = dict(zip([*terms, "explained_variance"], figures, strict=False))
        if self._entropy.adapts or config.ent_coef_final >= 0:
            found["ent_coef"] = entropy_weight
        if config.target_kl:
            found["passes"] = float(passes)
        if "entropy" in found:  # it is missing where the time was up
            self._entropy.adapt(found["entropy"])
        return found

    def record(self, features: int, agents: int, horizon: int, *, dtype: torch.dtype, idles: bool) -> None:
        """Records the update of whole iterations, where `recorder` records. A shorter one is computed as usual.

        Weights and the optimiser's state stay as they are. Call it after `compile`: passes that are compiled are
        recorded so.

        Args:
            features: of an observation.
            agents: of this process.
            horizon: steps of an iteration.
            dtype: of the observations that the network reads.
            idles: some agents may have ended while others play on, so that batches say who was `playing`.
        """
        if self.recorder.reason:
            return
        self._switch = lambda section: None  # a recording must not wait for the device
        for of_idle in (False, True)[: 1 + idles]:
            batch = self._example(features, agents, horizon, dtype, of_idle)
            work = self._new_work(batch)
            if not self._record(work):
                self._recorded.clear()  # the others would need as much
                break
            self._recorded[_shape(batch)] = work
        self._switch = self._stopwatch.switch
        self._flat.clear()
        self._stopwatch.reset()

    def _record(self, work: Work) -> bool:
        """Records all that an update does with a batch of this shape; returns whether it did."""
        config = self._config
        keeps = [self.weights, *self.optimizer.moments().values()]
        again = self._recompute_logprobs or config.overlap
        graph = self.recorder.record("the advantages", lambda: self._prepare(work, again=again), keeps=keeps)
        if graph is None:
            return False
        work.graphs["advantages", again] = graph
        work.gains, work.returns, work.logprobs = graph.output
        minibatches = torch.arange(work.drawn.segments, device=self._device).split(work.size)
        for epoch in range(config.update_epochs):
            for index, chosen in enumerate(minibatches):
                wanted = self._last_epoch(epoch) and index == len(minibatches) - 1
                if (key := (len(chosen), wanted)) not in work.graphs:
                    compute = functools.partial(self._step, work, wanted=wanted)
                    graph = self.recorder.record("a minibatch's step", compute, [chosen], keeps=keeps)
                    if graph is None:
                        return False
                    work.graphs[key] = graph
        graph = self.recorder.record("the figures", lambda: self._figures(work))
        if graph is None:
            return False
        work.graphs["figures"] = graph
        return True

    def _example(self, features: int, agents: int, horizon: int, dtype: torch.dtype, of_idle: bool) -> Batch:
        """Returns a batch of a whole iteration's shape, which every update fills anew."""
        policy, device = self._policy, self._device

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        return Batch(
            observations=zeros(horizon, agents, features, dtype=dtype),
            actions=zeros(policy.distribution.components, horizon, agents, dtype=policy.distribution.dtype),
            logprobs=zeros(horizon, agents),
            values=zeros(horizon + 1, agents),
            rewards=zeros(horizon, agents),
            ends=zeros(horizon, agents, dtype=torch.bool),
            resets=zeros(horizon, agents, dtype=torch.bool),
            state=zeros(agents, policy.state_size) if policy.state_size else None,
            playing=zeros(horizon, agents, dtype=torch.bool) if of_idle else None,
        )

    def _work(self, batch: Batch) -> Work:
        """Returns the batch to work on: a recorded one of its shape, filled with it, or itself."""
        work = self._recorded.get(_shape(batch)) if self._recorded else None
        if work is None:
            return self._new_work(batch)
        for name, tensor in batch.tensors().items():
            getattr(work.batch, name).copy_(tensor, non_blocking=True)
        return work

    def _new_work(self, batch: Batch) -> Work:
        drawn = batch if self._policy.state_size else batch.samples()
        return Work(
            batch=batch,
            drawn=drawn,
            size=self._minibatch_segments(drawn.segments, drawn.steps),
            norms=torch.zeros((), device=self._device),
            gains=drawn.rewards,
            returns=drawn.rewards,
            logprobs=drawn.logprobs,
        )

    def _last_epoch(self, epoch: int) -> bool:
        # With a target KL any pass may turn out to be the last one.
        return epoch == self._config.update_epochs - 1 or bool(self._config.target_kl)

    def _set_entropy_weight(self, progress: float) -> float:
        """Sets the weight of the entropy bonus, and returns it."""
        weight, now = self._entropy.coefficient(progress), self._coefficients.entropy
        if isinstance(now, torch.Tensor):
            now.fill_(weight)
        else:
            self._coefficients = dataclasses.replace(self._coefficients, entropy=weight)
        return weight

    def _prepare(self, work: Work, *, again: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns advantages, targets and log-probabilities, and begins the sum of norms; see `Work`.

        `again`: computes the log-probabilities of the actions as the policy is now.
        """
        config, drawn = self._config, work.drawn
        work.norms.zero_()
        ratios, logprobs = None, drawn.logprobs
        if again:
            now = self.logprobs(drawn, work.size)
            if config.overlap:
                ratios = now.sub_(drawn.logprobs).exp_().view_as(work.batch.logprobs)
            else:
                logprobs = now
            self._switch("advantage")
        gains, returns = advantages_and_returns(work.batch, ratios, config, self._world)
        return gains.view_as(drawn.logprobs), returns.view_as(drawn.logprobs), logprobs

    def _figures(self, work: Work) -> torch.Tensor:
        """Returns the share of the returns' variance that the old values explain, over the whole batch; the sum of the
        gradients' norms; and the sum of the weights."""
        batch = work.batch
        returns = work.returns.view_as(batch.rewards)
        spread, _ = spread_and_mean(returns, batch, self._world)
        missed, _ = spread_and_mean(returns - batch.values[:-1], batch, self._world)
        return torch.stack([1 - (missed / spread.clamp_min(1e-6)).square(), work.norms, self.weights.sum()])

    @torch.no_grad()
    def logprobs(self, batch: Batch, size: int) -> torch.Tensor:
        """Returns the log-probabilities of the actions under the policy as it is, `T x N`.

        Computes `size` segments at a time, no more than an update holds.
        """
        self._switch("update_forward")
        logprobs = torch.empty_like(batch.logprobs)
        policy = self._policy
        for first in range(0, batch.segments, size):
            columns = slice(first, first + size)
            state = None if batch.state is None else batch.state[columns]
            observations, resets = (rows[:, columns].contiguous() for rows in (batch.observations, batch.resets))
            with self._autocast():  # not the compiled network, which would be compiled again without gradients
                output, _ = policy.forward(observations, state, resets)
            actions = batch.actions[:, :, columns].flatten(1)
            logp = policy.distribution.terms(output.float()[: policy.action_rows], actions).logp
            logprobs[:, columns] = logp.view(batch.steps, -1)
        return logprobs

    def _step(self, work: Work, chosen: torch.Tensor, *, wanted: bool) -> dict[str, torch.Tensor]:
        """Takes one step of the optimiser with some segments; returns the figures of the loss where they are `wanted`.

        Adds the gradient's norm to the sum of norms.
        """
        config, switch, policy, coefficients = self._config, self._switch, self._policy, self._coefficients
        batch, terms = work.drawn, dict[str, torch.Tensor]()
        switch("copy")
        size = len(chosen) * batch.steps * self._world.size
        weight: torch.Tensor | None = None
        if batch.playing is not None:  # then the loss is the mean over the samples that count
            number = batch.playing.index_select(1, chosen).sum(dtype=batch.rewards.dtype)
            weight = size / self._world.sum_(number).clamp_min(1)
        # The whole batch at once: its order does not matter, so nothing is copied.
        whole = len(chosen) == batch.segments and config.accumulation_steps == 1

        def of(rows: torch.Tensor, part: torch.Tensor, dim: int = 1) -> torch.Tensor:
            return rows if whole else rows.index_select(dim, part)

        self._flat.clear()
        for part in chosen.tensor_split(config.accumulation_steps):
            if not len(part):
                continue
            switch("copy")
            minibatch = Minibatch(
                actions=of(batch.actions, part, 2).flatten(1),
                logprobs=of(work.logprobs, part).flatten(),
                advantages=of(work.gains, part).flatten(),
                returns=of(work.returns, part).flatten(),
                weights=None if weight is None or batch.playing is None else of(batch.playing, part).flatten() * weight,
                size=size,
            )
            observations, resets = of(batch.observations, part), of(batch.resets, part)
            state = None if batch.state is None else of(batch.state, part, 0)
            switch("update_forward")
            output, backward = self._pass(observations, state, resets)
            outcome = output.detach().float()
            if wanted:
                for name, term in ppo_loss(policy, outcome, minibatch, coefficients).items():
                    terms[name] = terms[name] + term if name in terms else term
            gradient = self.optimizer.scaled(loss_gradient(policy, outcome, minibatch, coefficients))
            switch("update_backward")
            backward(gradient.to(output.dtype))
        switch("copy")
        self._world.sum_(self._flat.gradients)
        switch("optimizer")
        work.norms += self.optimizer.step(config.max_grad_norm)
        return terms

    def _pass(
        self, observations: torch.Tensor, state: torch.Tensor | None, resets: torch.Tensor
    ) -> tuple[torch.Tensor, Backward]:
        """Returns the network's output and what differentiates it, as `Policy.vjp` does."""
        with self._autocast():
            if self._compiled is None:
                return self._policy.vjp(observations, state, resets)
            output, _ = self._compiled(observations, state, resets)
            return output, lambda by_output: backward_from(output, by_output)

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        return autocast(self._device, self._precision, caches=self._caches)


class EntropyBonus:
    """The weight of the entropy bonus: constant, along a straight line, or adapted to a target.

    Adapted (`adapts`), the weight c rises while the policy's entropy H is below the target H* and falls while it is
    above it:
        log c  <-  log c + `RATE` clip(H* - H, -1, 1)        within [`LEAST`, `MOST`], once an update
    H is that of the update's last minibatch, in nats, summed over the components of an action. That of continuous
    actions may be negative.
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self.adapts = bool(config.target_entropy)
        # A tensor of float64, so that a resumed run continues with the very number.
        self._log = torch.tensor(max(config.ent_coef, LEAST), dtype=torch.float64).log()

    def coefficient(self, progress: float) -> float:
        """Returns the weight after the fraction `progress`, in [0, 1], of the run."""
        config = self._config
        if self.adapts:
            return float(self._log.exp())
        if config.ent_coef_final < 0:
            return config.ent_coef
        return config.ent_coef + (config.ent_coef_final - config.ent_coef) * progress

    def adapt(self, entropy: float) -> None:
        """Moves the weight after an update that ended with this entropy."""
        if self.adapts:
            gap = torch.tensor(self._config.target_entropy - entropy, dtype=torch.float64).clamp(-1.0, 1.0)
            limits = torch.tensor([LEAST, MOST], dtype=torch.float64).log()
            self._log = (self._log + RATE * gap).clamp(limits[0], limits[1])

    def state(self) -> dict[str, torch.Tensor]:
        """Returns what the next weight depends on; nothing where it does not adapt."""
        return {"entropy.log_coefficient": self._log} if self.adapts else {}

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores a `state`. One of a run that did not adapt leaves the weight where it begins."""
        if self.adapts and "entropy.log_coefficient" in state:
            self._log = state["entropy.log_coefficient"].clone()


def why_not_recorded(config: TrainConfig, world: World) -> str:
    """Returns what forbids to record an update on any device; "" where nothing does.

    Of an update that is recorded, one thing is computed as usual: the last iteration of a run, where it is shorter.
    """
    if world.size > 1:
        return "several processes share the gradients"
    if update_precision(config) == "fp16":
        return "fp16 decides on the host whether a step is taken"
    return ""


def _shape(batch: Batch) -> object:
    """Returns what two batches must have in common for one recording."""
    return tuple((name, tensor.shape, tensor.dtype) for name, tensor in batch.tensors().items())


def make_optimizer(policy: Policy, weights: nn.Parameter, config: TrainConfig) -> Optimizer:
    """Returns the optimiser of the policy whose parameters are in one vector, `weights`.

    AdamW works on the vector of all weights. With `train.optimizer = "muon"`, Muon works on the matrices of the hidden
    layers, and AdamW on the other parameters: biases, the first layer, the output layer. A recurrent layer stacks a
    square matrix for each of its gates; Muon works on each of them.
    """
    stacks = _hidden_matrices(policy) if config.optimizer == "muon" else {}
    rest, decays = [weights], None
    if stacks:
        rest = [parameter for parameter in policy.parameters() if parameter not in stacks]
    elif config.weight_decay:
        trained = [(p.detach(), p.ndim >= 2 and p.requires_grad) for p in policy.parameters()]
        decays = torch.cat([torch.full_like(p, float(decays)).flatten() for p, decays in trained])
    rates = {"learning_rate": config.learning_rate, "weight_decay": config.weight_decay}
    betas = config.beta1, config.beta2
    parts: list[Part] = [AdamW(rest, betas=betas, eps=config.adam_eps, decays=decays, **rates)]
    if stacks:
        parts.append(Muon(list(stacks), momentum=config.beta1, stacked=list(stacks.values()), **rates))
    precision = update_precision(config)
    return Optimizer(weights, parts, lambda progress: rate_share(config, progress), precision=precision)


def _hidden_matrices(policy: Policy) -> dict[nn.Parameter, int]:
    """Returns the matrices between hidden layers, each with the number of square ones that it stacks, or 1.

    They are neither those of layers that read observations nor those of output layers.
    """
    encoders = [policy.encoder, *([] if policy.value_encoder is None else [policy.value_encoder])]
    first = {next(encoder.parameters()) for encoder in encoders}
    return {
        parameter: parameter.shape[0] // parameter.shape[1] if name.startswith("recurrence.") else 1
        for name, parameter in policy.named_parameters()
        if parameter.ndim == 2 and parameter not in first and not name.startswith(("head.", "value_output."))
    }
