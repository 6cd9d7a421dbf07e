"""One run of PPO: builds its parts, alternates rollouts and updates, reports, evaluates.

A run's cost is the time of its rollouts and updates. Start-up, compilation, checkpoints and the final evaluation do not
count, and their seconds are reported separately. The clock may be that of another machine: see `speed` of
`protein.trainer.run.run`.

With several processes (`protein.trainer.machine.distributed`) each does its share. Counters and the clock are common to
all processes. The first process reports, writes the checkpoint and evaluates.

All random numbers come from `train.seed`, through independent streams for weights, actions, shuffling and environments.
The evaluation has a fifth stream, so its episodes are new, and the random play of `warm_up` a sixth.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from ..config import RunConfig, check_batch
from ..environments import ASYNC, VectorEnv, closing, groups, kind_of, make, playing
from ..environments.sides import Anchored, rating
from ..errors import ConfigError, DivergedError
from ..evaluate import envs_for, play
from ..events import RunResult, Stopped
from ..machine.checkpoint import Checkpoint
from ..machine.graphs import Recorder, in_words
from ..machine.precision import env_threads, half_convolutions
from ..machine.precision_table import precisions_of
from ..machine.stopwatch import Stopwatch
from ..model.policy import Policy
from ..normalise import decided
from ..progress import Progress, RunContext
from . import memory
from .overlap import Collector, InterleavedRollout, Snapshot
from .rollout import Rollout
from .selfplay import SelfPlay
from .state import Scores, TrainingState
from .trainable import require_trainable
from .update import PPO


class Training:
    """The parts of one run. `progress` has its counters and its clock."""

    def __init__(self, config: RunConfig, context: RunContext) -> None:
        train, device, world = config.train, context.device, context.world
        acting_in, update_in = self._precisions = context.precisions or precisions_of(config, device)
        in_precisions = dataclasses.replace(train, precision=acting_in, update_precision=update_in, train_fp16=False)
        self._selfplay: SelfPlay | None = None
        self._config, self._context, self._world, self._stopwatch = config, context, world, context.stopwatch
        self.progress = Progress(
            train,
            context,
            total_steps=train.total_timesteps,
            steps_name="train.total_timesteps",
            # A longer run would have had another entropy bonus from its first step on.
            extends=train.ent_coef_final < 0 or train.ent_coef_final == train.ent_coef,
        )
        weights, actions, shuffle, envs, evaluation, random_play = (
            int(seed) for seed in np.random.SeedSequence(train.seed).generate_state(6, np.uint32)
        )
        self._evaluation_seed, self._envs_seed, self._random_seed = evaluation, envs, random_play
        share = config.env.num_envs // world.size
        halves = 2 if config.env.double_buffer and kind_of(config.env.name) != ASYNC else 1
        made: list[VectorEnv]
        if config.selfplay.on:
            self._selfplay = SelfPlay(config, envs, env_threads(config.env.num_envs, context.threads))
            made = [self._selfplay]
        else:
            made = _make_envs(
                config, share, envs, context.threads, first_index=world.rank * share, parts=halves, training=True
            )
        if torch.get_default_dtype() != torch.float32:
            raise ConfigError(
                f"'{config.env.name}' has set torch's default type to {torch.get_default_dtype()}, and networks are of "
                "float32: leave out torch.set_default_dtype"
            )
        self._workers = getattr(made[0], "workers", 0)
        self._envs = [group for batch in made for group in groups(batch)]
        self._spec = self._envs[0].spec
        self._agents = sum(env.num_agents for env in self._envs) * world.size  # of all processes
        self._full = self._agents * train.horizon  # steps of an iteration; the last one may have fewer
        memory.require_memory(config, self._spec, memory.free_bytes(device), world.size)
        self._policy = Policy(
            self._spec,
            config.policy,
            generator=torch.Generator().manual_seed(weights),
            half_convolutions=half_convolutions(device, train.precision),
        ).to(device)
        require_trainable(self._policy, dataclasses.replace(config, train=in_precisions), device)
        check_batch(config, self._spec.agents_per_env, world.size, has_memory=self._policy.state_size > 0)
        self.progress.require_writable()
        snapshot = None  # of the weights: the network that acts is the one that trains
        if train.cpu_inference or train.overlap:
            snapshot = Snapshot(self._policy, torch.device("cpu") if train.cpu_inference else device)
        acting = device if snapshot is None else snapshot.device
        self._ppo = PPO(
            self._policy,
            in_precisions,
            device=device,
            generator=torch.Generator().manual_seed(shuffle),
            stopwatch=self._stopwatch,
            world=world,
            # With overlap the weights have changed since, and the ratios correct for all that has.
            recompute_logprobs=acting != device and not train.overlap,
        )
        self._rollout = (Rollout if len(self._envs) == 1 else InterleavedRollout)(
            self._envs,
            self._policy if snapshot is None else snapshot.policy,
            horizon=train.horizon,
            gamma=train.gamma,
            device=acting,
            generator=torch.Generator(acting).manual_seed(actions),
            stopwatch=Stopwatch(acting) if train.overlap else self._stopwatch,
            precision=acting_in,
            world=world,
            keep=2 if train.overlap else 1,
            pin=device.type == "cuda",
        )
        self._source: Rollout | Collector = self._rollout  # of batches
        if snapshot is not None:
            own_agents, layer = self._agents // world.size, self._policy.largest_layer
            self._source = Collector(
                self._rollout,
                snapshot,
                self._ppo.weights,
                overlap=train.overlap,
                device=device,
                stopwatch=self._stopwatch,
                prepare=lambda: context.arithmetic.prepare_threads(own_agents, layer),
            )
        scored = self._agents
        mean: Callable[[Sequence[float]], float] = statistics.fmean
        if self._selfplay is not None:
            self._selfplay.join(
                self._policy if snapshot is None else snapshot.policy,
                horizon=train.horizon,
                device=acting,
                normalizer=lambda: self._rollout.conditioning.normalizer,
            )
            whole, scored = self._selfplay.whole, self._selfplay.scored_agents
            mean = lambda scores: rating(whole, statistics.fmean(scores))  # noqa: E731
        self._rollout.reset(envs)
        self._scores = Scores(max(train.score_window, scored), world, mean)
        self._state = TrainingState(
            spec=self._spec,
            policy=self._policy,
            ppo=self._ppo,
            rollout=self._rollout,
            snapshot=snapshot,
            scores=self._scores,
            world=world,
            precisions=self._precisions,
        )
        self._figures: dict[str, float] = {}

    def restore(self, path: Path) -> Checkpoint:
        """Sets all parts to what a checkpoint of the same environment and network holds, and returns it.

        Raises:
            CheckpointError: it is of another environment, network, number of environments or of processes.
        """
        return self._state.read_(path, self._config)

    def run(self, started: float) -> RunResult:
        progress = self.progress
        progress.require_room(self._state.num_bytes())
        notes = [] if progress.resumed else self._begin()
        if self._config.env.workers and not self._workers:
            notes.append(f"env.workers has no effect on '{self._spec.name}': processes are for gym-async:ID alone")
        timings = {"startup": time.perf_counter() - started}
        own_agents = self._agents // self._world.size
        if self._config.train.compile:
            self._prepare(self._config.train.minibatch_size // self._world.size)
            timings["compile"] = self._ppo.compile(self._spec.observation_size, own_agents, self._horizons())
        recorders = self._record(timings)
        start = progress.start(
            self._config.subject,
            parameters=sum(p.numel() for p in self._policy.parameters()),
            startup_seconds=timings["startup"],
            compiled=self._ppo.compiled,
            notes=notes,
        )
        start["graphs"] = in_words(recorders)
        start["normalize_observations"] = self._rollout.conditioning.normalizer is not None
        start["scale_rewards"] = self._rollout.conditioning.scales
        if self._precisions != (self._config.train.precision,) * 2:
            start["precision"] = self._precisions.text
        if self._workers:
            start["workers"] = self._workers
        self._context.report(start)
        stopped = self._train()
        progress.save(self._write)
        recent = self._scores.summary()
        self._world.close()  # from here on the processes share nothing
        evaluation = None
        if self._world.is_first and stopped != "signal":
            self.close()  # processes of Python environments would only take cores from the evaluation
            how = self._config.eval
            num_envs = envs_for(how.episodes, how.num_envs, self._spec.agents_per_env)
            (envs,) = _make_envs(self._config, num_envs, self._evaluation_seed, self._context.threads)
            if self._selfplay is not None:
                envs = Anchored(envs)
            self._prepare(envs.num_agents)
            with closing(envs):
                evaluation = play(
                    self._policy,
                    envs,
                    episodes=how.episodes,
                    normalizer=self._rollout.conditioning.normalizer,
                    seed=self._evaluation_seed,
                    greedy=how.greedy,
                    stop=self._context.stop.is_set,
                )
            timings["evaluation"] = evaluation.seconds
        interrupted, score = self._context.stop.is_set(), None
        metrics = {"episodes": float(recent.episodes)}
        if recent.mean is not None:
            metrics["train_score"] = recent.mean
        if evaluation is not None and not interrupted:
            score = evaluation.score
            metrics |= {"score_std": evaluation.score_std, "evaluation_episodes": float(evaluation.episodes)}
        return progress.end(score=score, timings=timings, metrics=metrics, stopped=stopped, interrupted=interrupted)

    def close(self) -> None:
        """Closes the environments and what they hold, such as processes. It may be called twice."""
        self._source.close()
        with closing(*self._envs):
            pass

    def _begin(self) -> list[str]:
        """Decides what is done to observations and rewards, and with which weights; returns what to say about it."""
        if path := self._config.policy.init_from:
            notes = [self._state.begin_(Path(path), self._config)]
            self._rollout.reset(self._envs_seed)  # also a pool of self-play, which begins with these weights
            return notes
        conditioning, notes, used = decided(
            self._envs, self._config.train, seed=self._random_seed, device=self._rollout.device, world=self._world
        )
        self._rollout.condition(conditioning)
        if used:
            self._rollout.reset(self._envs_seed)
        return notes

    def _record(self, timings: dict[str, float]) -> dict[str, Recorder]:
        """Records what the run computes again and again; returns what tells of each part whether it is recorded."""
        began, train, own_agents = time.perf_counter(), self._config.train, self._agents // self._world.size
        on_host = self._rollout.device.type != self._context.device.type
        acting = Recorder(
            self._context.device, train.graphs, forbidden="train.cpu_inference acts on the CPU" if on_host else ""
        )
        recorders = {"acting": acting, "update": self._ppo.recorder}
        if all(recorder.reason for recorder in recorders.values()):
            return recorders
        self._prepare(own_agents)
        self._rollout.record(acting)
        if train.horizon in self._horizons():
            normalised = self._rollout.conditioning.normalizer is not None
            self._ppo.record(
                self._spec.observation_size,
                own_agents,
                train.horizon,
                dtype=torch.float32 if normalised else self._policy.observation_dtype,
                idles=any(playing(env) is not None for env in self._envs),
            )
        else:
            self._ppo.recorder.reason = self._ppo.recorder.reason or "no whole iteration is left"
        timings["graphs"] = time.perf_counter() - began
        return recorders

    def _train(self) -> Stopped:
        """Trains until the steps are done, the time is up or a signal came. Returns which of the three."""
        train, stopwatch, world = self._config.train, self._stopwatch, self._world
        progress, stopped = self.progress, None
        ahead = False  # whether the next batch is begun already; then the rollout's state must not be saved
        progress.begin()
        if train.overlap:  # both threads use these settings, so they must not change while one of them computes
            self._prepare(train.minibatch_size // world.size)
        while progress.steps < train.total_timesteps:
            if not ahead:
                stopped = progress.between_steps(self._write, self._full)
                if stopped:
                    break
            progress.begin_step()
            stopwatch.switch("other")
            if not train.overlap:
                self._prepare(self._agents // world.size)
            batch, finished = self._source.take(self._horizon(), progress.time_is_up)
            batch = self._rollout.settle(batch, world)
            taken = len(batch) * world.size
            fraction = progress.fraction(taken)
            progress.advance(taken)
            ahead = train.overlap and self._collect_ahead()
            self._prepare(min(train.minibatch_size // world.size, len(batch)))
            try:
                self._figures |= self._ppo.update(batch, fraction, progress.time_is_up)
            except DivergedError as error:
                raise DivergedError(f"diverged at step {progress.steps}: {error}") from error
            stopwatch.switch("logging")
            self._scores.add(progress.steps, finished.score.tolist(), len(finished))
            stopwatch.stop()
            progress.end_step()
            if progress.report_due:
                self._measure()
        if progress.unreported:
            self._measure()
        return stopped or "steps"

    def _collect_ahead(self) -> bool:
        """Begins the next batch beside the update, unless a checkpoint or an end comes before it; whether it did."""
        progress = self.progress
        stops = progress.checkpoint_due or progress.decay_is_next(self._full) or progress.ended() is not None
        if stops or progress.time_is_up() or progress.steps >= self._config.train.total_timesteps:
            return False
        assert isinstance(self._source, Collector)
        self._source.begin(self._horizon(), progress.time_is_up)
        return True

    def _horizon(self) -> int:
        """Returns the length of the next iteration. The last one may be shorter, to end at the run's steps."""
        train = self._config.train
        return min(train.horizon, -(-(train.total_timesteps - self.progress.steps) // self._agents))

    def _horizons(self) -> set[int]:
        """Returns the lengths of all iterations that are to come."""
        left, horizon = max(self._config.train.total_timesteps - self.progress.steps, 0), self._config.train.horizon
        rest = -(-(left % self._full) // self._agents)
        return ({horizon} if left >= self._full else set()) | ({rest} if rest else set())

    def _prepare(self, rows: int) -> None:
        self._context.arithmetic.prepare(rows, self._policy.largest_layer)

    def _measure(self) -> None:
        recent = self._scores.summary()
        self.progress.report(
            recent.mean,
            {**self._figures, "learning_rate": self._ppo.optimizer.learning_rate, "episodes": recent.episodes},
        )

    def _write(self, path: Path) -> None:
        self._state.write(path, self._config, self.progress)


def _make_envs(
    config: RunConfig,
    num_envs: int,
    seed: int,
    threads: int,
    *,
    first_index: int = 0,
    parts: int = 1,
    training: bool = False,
) -> list[VectorEnv]:
    """Makes environments in equal parts. Instances, from `first_index` on, draw what they would in one batch."""
    size = num_envs // parts
    return [
        make(
            config.env.name,
            size,
            seed=seed,
            frame_skip=config.env.frame_skip,
            threads=env_threads(num_envs, threads),
            first_index=first_index + part * size,
            args=config.env.args,
            workers=config.env.workers,
            cores=threads,
            training=training,
        )
        for part in range(parts)
    ]
