"""One run of PPO: builds its parts, alternates rollouts and updates, reports, evaluates.

A run's cost is the time of its rollouts and updates. Start-up, compilation, checkpoints and the final evaluation do not
count, and their seconds are reported separately. The clock may be that of another machine: see `speed` of
`protein.trainer.run.run`.

With several processes (`protein.trainer.machine.distributed`) each does its share. Counters and the clock are common to
all processes. The first process reports, writes the checkpoint and evaluates.

All random numbers come from `train.seed`, through independent streams for weights, actions, shuffling and environments.
The evaluation has a fifth stream, so its episodes are new, and the random play of `warm_up` a sixth.
"""

import contextlib
import math
import threading
import time
from pathlib import Path

import numpy as np
import torch

from ..config import RunConfig, check_batch
from ..environments import ASYNC, VectorEnv, groups, kind_of, make
from ..errors import CheckpointError, DivergedError
from ..evaluate import envs_for, play
from ..events import (
    Continuation,
    Ending,
    EventSink,
    Interrupted,
    Measurement,
    Result,
    RunResult,
    Start,
    Stopped,
    run_result,
)
from ..machine import checkpoint as checkpoints
from ..machine.distributed import World
from ..machine.precision import Arithmetic, env_threads
from ..machine.stopwatch import SECTIONS, Stopwatch
from ..model.policy import Policy
from .collector import Collector, Snapshot
from .rollout import Rollout
from .schedule import Schedule
from .scores import Scores
from .state import TrainingState
from .update import PPO
from .warm_up import decided

REPORT_SECONDS = 0.5  # at most two measurements a second ...
REPORT_FRACTION = 0.02  # ... and at most one in each fiftieth of the run ...
REPORT_SECONDS_MAX = 10.0  # ... but at least one in this time
CHECKPOINT_SHARE = 0.01  # of the time may go to checkpoints before the end; where they take longer, there are fewer


class Training:
    """The parts of one run and its counters."""

    def __init__(
        self,
        config: RunConfig,
        *,
        device: torch.device,
        threads: int,
        arithmetic: Arithmetic,
        directory: Path | None,
        report: EventSink,
        stop: threading.Event,
        stopwatch: Stopwatch,
        world: World,
        speed: float,
    ) -> None:
        train = config.train
        self._world, self._speed = world, speed
        self._config, self._device, self._threads, self._report, self._stop = config, device, threads, report, stop
        self._arithmetic = arithmetic
        self._path = directory / checkpoints.FILE_NAME if directory else None
        self._stable_path = directory / checkpoints.STABLE_FILE_NAME if directory else None
        self._stable_seconds: float | None = None  # when the step size of `wsd` began to fall, on this run's clock
        weights, actions, shuffle, envs, evaluation, random_play = (
            int(seed) for seed in np.random.SeedSequence(train.seed).generate_state(6, np.uint32)
        )
        self._evaluation_seed, self._envs_seed, self._random_seed = evaluation, envs, random_play
        self._stopwatch = stopwatch
        share = config.env.num_envs // world.size
        halves = 2 if config.env.double_buffer and kind_of(config.env.name) != ASYNC else 1
        made = _make_envs(config, share, envs, threads, first_index=world.rank * share, parts=halves, training=True)
        self._workers = getattr(made[0], "workers", 0)
        self._envs = [group for batch in made for group in groups(batch)]
        self._spec = self._envs[0].spec
        check_batch(config, self._spec.agents_per_env, world.size)
        self._agents = sum(env.num_agents for env in self._envs) * world.size  # of all processes
        self._schedule = Schedule(train, self._agents)
        self._policy = Policy(self._spec, config.policy, generator=torch.Generator().manual_seed(weights)).to(device)
        if directory and world.is_first:
            checkpoints.require_writable(directory)
        host = torch.device("cpu")
        acting = host if train.cpu_inference else device
        snapshot = Snapshot(self._policy, acting) if train.cpu_inference or train.overlap else None
        self._snapshot = snapshot
        self._action_generator = torch.Generator(acting).manual_seed(actions)
        self._shuffle_generator = torch.Generator().manual_seed(shuffle)
        self._ppo = PPO(
            self._policy,
            train,
            device=device,
            generator=self._shuffle_generator,
            stopwatch=self._stopwatch,
            world=world,
            # With overlap the weights have changed since, and the ratios correct for all that has.
            recompute_logprobs=acting != device and not train.overlap,
        )
        self._rollout = Rollout(
            self._envs,
            self._policy if snapshot is None else snapshot.policy,
            horizon=train.horizon,
            gamma=train.gamma,
            device=acting,
            generator=self._action_generator,
            stopwatch=Stopwatch(acting) if train.overlap else self._stopwatch,
            precision=train.precision,
            world=world,
            keep=2 if train.overlap else 1,
            pin=device.type == "cuda",
        )
        own_agents, layer = self._agents // world.size, self._policy.largest_layer
        self._collector = Collector(
            self._rollout,
            snapshot,
            self._ppo.weights,
            overlap=train.overlap,
            device=device,
            stopwatch=self._stopwatch,
            prepare=lambda: arithmetic.prepare_threads(own_agents, layer),
        )
        self._rollout.reset(envs)
        self._scores = Scores(max(train.score_window, self._agents), world)
        self._state = TrainingState(
            spec=self._spec,
            policy=self._policy,
            ppo=self._ppo,
            rollout=self._rollout,
            snapshot=snapshot,
            scores=self._scores,
            world=world,
        )
        self._figures: dict[str, float] = {}
        self._warmed_up = self._resumed = self._interrupted = False
        self._began: float | None = None  # when the iteration that is running began
        self.steps = 0
        self.elapsed = 0.0
        self._first_step = 0  # of this run's clock: above 0 where it goes on with a shorter run
        self._progress = 1.0  # of the run's schedule, in the middle of the last batch
        self._saving_seconds = 0.0  # that the last checkpoint took

    def go_on(self, path: Path) -> None:
        """Goes on with a shorter run from its checkpoint: the last one, with `wsd` that before the step size fell.

        Steps count from the first one of the shorter run, seconds from here. The result equals that of a longer run in
        one go, as far as random numbers and episodes can be restored, where the shorter run's steps were a whole number
        of iterations. One thing differs: the warm-up was that of the shorter run and is not made again.
        """
        self.resume(path)
        if self.steps >= self._config.train.total_timesteps:
            raise CheckpointError(
                f"cannot continue {path}: it has made {self.steps} steps; train.total_timesteps must be larger, got"
                f" {self._config.train.total_timesteps}"
            )
        self.elapsed, self._first_step, self._warmed_up = 0.0, self.steps, True

    def resume(self, path: Path) -> None:
        """Continues from a checkpoint of the same environment, network and number of environments.

        Where that run had gone on with a shorter one, it still does: the shorter one's checkpoint is not needed.
        """
        self.steps, self.elapsed, first_step = self._state.read_(path, self._config)
        self._first_step = max(self._first_step, first_step)
        self._warmed_up = self._first_step > 0
        self._resumed = True
        if self._stable_path is not None and self._stable_path.is_file() and self._stable_path != path:
            # It was written by the run that is resumed, if it lies behind this place: a longer run can go on from it.
            stable = checkpoints.read(self._stable_path, prefix="none/")
            if stable.steps <= self.steps and stable.config.train.seed == self._config.train.seed:
                self._stable_seconds = stable.elapsed_seconds

    def run(self, started: float) -> RunResult:
        notes = [] if self._resumed else self._begin()
        timings = {"startup": time.perf_counter() - started}
        if self._config.train.compile:
            self._prepare(self._config.train.minibatch_size // self._world.size)
            timings["compile"] = self._ppo.compile(
                self._spec.observation_size, self._agents // self._world.size, self._schedule.horizons(self.steps)
            )
        start = Start(
            event="start",
            env=self._config.env.name,
            steps=self.steps,
            device=str(self._device),
            processes=self._world.size,
            threads=self._threads,
            parameters=sum(p.numel() for p in self._policy.parameters()),
            startup_seconds=timings["startup"],
            compiled=self._ppo.compiled,
            normalize_observations=self._rollout.conditioning.normalizer is not None,
            scale_rewards=self._rollout.conditioning.scales,
            notes=notes,
        )
        if self._workers:
            start["workers"] = self._workers
        self._report(start)
        try:
            stopped = self._train()
        finally:
            self._collector.close()
        self._write_checkpoint(self._path)
        recent = self._scores.summary()
        self._world.close()  # from here on the processes share nothing
        evaluation = None
        if self._world.is_first and stopped != "signal":
            self.close()  # processes of Python environments would only take cores from the evaluation
            evaluating = self._config.eval
            num_envs = envs_for(evaluating.episodes, evaluating.num_envs, self._spec.agents_per_env)
            (envs,) = _make_envs(self._config, num_envs, self._evaluation_seed, self._threads)
            self._prepare(envs.num_agents)
            with contextlib.closing(envs):
                evaluation = play(
                    self._policy,
                    envs,
                    episodes=self._config.eval.episodes,
                    normalizer=self._rollout.conditioning.normalizer,
                    seed=self._evaluation_seed,
                    greedy=self._config.eval.greedy,
                    stop=self._stop.is_set,
                )
            timings["evaluation"] = evaluation.seconds
        interrupted = self._stop.is_set()
        score = None if evaluation is None or interrupted else evaluation.score
        metrics = {"episodes": float(recent.episodes)}
        if recent.mean is not None:
            metrics["train_score"] = recent.mean
        if evaluation is not None and not interrupted:
            metrics |= {"score_std": evaluation.score_std, "evaluation_episodes": float(evaluation.episodes)}
        ending = Ending(
            score=score,
            steps=self.steps,
            elapsed_seconds=self.elapsed,
            timings=timings,
            metrics=metrics,
            checkpoint=str(self._path.absolute()) if self._path else None,
            **self._continuable(stopped),
            stopped=stopped,
        )
        event: Result | Interrupted
        event = Interrupted(event="interrupted", **ending) if interrupted else Result(event="result", **ending)
        self._report(event)
        return run_result(event)

    @property
    def spent_seconds(self) -> float:
        """Seconds of training so far, including those of an iteration that is running or has failed."""
        return self.elapsed + (0.0 if self._began is None else self._speed * (time.perf_counter() - self._began))

    def close(self) -> None:
        """Closes the environments and what they hold, such as processes. It may be called twice."""
        self._rollout.close()
        for envs in self._envs:
            envs.close()

    def _begin(self) -> list[str]:
        """Decides what is done to observations and rewards; returns what to say about it."""
        conditioning, notes, used = decided(
            self._envs, self._config.train, seed=self._random_seed, device=self._rollout.device, world=self._world
        )
        self._rollout.condition(conditioning)
        if used:
            self._rollout.reset(self._envs_seed)
        return notes

    def _train(self) -> Stopped:
        """Trains until the steps are done, the time is up or a signal came. Returns which of the three."""
        train, agents, stopwatch, world = self._config.train, self._agents, self._stopwatch, self._world
        reported_seconds, reported_steps, saved_seconds = self.elapsed, self.steps, self.elapsed
        stopped: Stopped = "steps"
        self._agree()
        if train.overlap:  # both threads use these settings, so they must not change while one of them computes
            self._prepare(train.minibatch_size // world.size)
        limit, longest = train.max_seconds or math.inf, 0.0
        while self.steps < train.total_timesteps:
            # One process stops in the middle of an iteration. Several must end together, so they begin no iteration
            # that may not fit, as long as the longest so far.
            timed_out = self.elapsed + (longest if world.size > 1 else 0.0) >= limit
            interval = train.checkpoint_seconds
            if world.size == 1:  # several write together, and measure different times
                interval = max(interval, self._saving_seconds / CHECKPOINT_SHARE)
            save = bool(train.checkpoint_seconds) and self.elapsed - saved_seconds >= interval
            # Only between batches, where the state is complete: then a resumed run equals the uninterrupted one.
            if not self._collector.in_flight:
                if save:
                    saved_seconds, save = self.elapsed, False
                    self._write_checkpoint(self._path)
                if self._schedule.decay_is_next(self.steps):
                    self._stable_seconds = self.elapsed
                    self._write_checkpoint(self._stable_path)
                if self._interrupted or timed_out:
                    stopped = "signal" if self._interrupted else "max_seconds"
                    break
            self._began = began = time.perf_counter()
            until = began + (limit - self.elapsed) / self._speed if world.size == 1 else math.inf
            stopwatch.switch("other")
            if not train.overlap:
                self._prepare(agents // world.size)
            batch, finished = self._collector.take(self._schedule.horizon(self.steps), until)
            batch = self._rollout.settle(batch, world)
            taken = len(batch) * world.size
            progress = self._schedule.progress(self.steps, taken, warmed_up=self._warmed_up)
            self._progress = progress
            self.steps += taken
            # A checkpoint or an end that is due comes after this batch, so no other is begun.
            save = save or self._schedule.decay_is_next(self.steps)
            ahead = train.overlap and not (save or timed_out or self._interrupted) and time.perf_counter() < until
            if ahead and self.steps < train.total_timesteps:
                self._collector.begin(self._schedule.horizon(self.steps), until)
            self._prepare(min(train.minibatch_size // world.size, len(batch)))
            try:
                self._figures |= self._ppo.update(batch, progress, until)
            except DivergedError as error:
                raise DivergedError(f"diverged at step {self.steps}: {error}") from error
            stopwatch.switch("logging")
            self._scores.add(self.steps, finished.score.tolist(), len(finished))
            stopwatch.stop()
            before = self.elapsed
            self.elapsed += self._speed * (time.perf_counter() - began)
            self._began = None
            self._agree()
            longest = max(longest, self.elapsed - before)  # of the clock that all have agreed on
            since = self.elapsed - reported_seconds
            due = self.steps - reported_steps >= REPORT_FRACTION * train.total_timesteps or since >= REPORT_SECONDS_MAX
            if due and since >= REPORT_SECONDS:
                reported_seconds, reported_steps = self.elapsed, self.steps
                self._measure()
        if self.steps > reported_steps:
            self._measure()
        return stopped

    def _agree(self) -> None:
        """Passes a signal on to all processes, and sets the clock of all to that of the first."""
        self._interrupted, self.elapsed = self._world.agree(self._stop.is_set(), self.elapsed)
        if self._interrupted:
            self._stop.set()

    def _prepare(self, rows: int) -> None:
        self._arithmetic.prepare(rows, self._policy.largest_layer)

    def _measure(self) -> None:
        seconds = self._stopwatch.seconds
        recent = self._scores.summary()
        self._report(
            Measurement(
                event="measurement",
                steps=self.steps,
                elapsed_seconds=self.elapsed,
                score=recent.mean,
                metrics={
                    **self._figures,
                    "learning_rate": self._ppo.learning_rate,
                    "episodes": recent.episodes,
                    "steps_per_second": self._speed * (self.steps - self._first_step) / max(self.elapsed, 1e-9),
                    **{f"{section}_seconds": seconds[section] for section in SECTIONS},
                },
            )
        )

    def _continuable(self, stopped: Stopped) -> Continuation:
        """Returns the checkpoint from which a longer run can go on, and when in this run it was written."""
        path, seconds = self._stable_path, self._stable_seconds
        if self._schedule.stays(self._progress):
            path, seconds = self._path, self.elapsed
        if path is None or seconds is None or stopped != "steps":
            return Continuation(continuable=None, continuable_seconds=None)
        return Continuation(continuable=str(path.absolute()), continuable_seconds=seconds)

    def _write_checkpoint(self, path: Path | None) -> None:
        if path is not None:
            began = time.perf_counter()
            self._state.write(
                path, self._config, steps=self.steps, elapsed_seconds=self.elapsed, first_step=self._first_step
            )
            self._saving_seconds = time.perf_counter() - began


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
