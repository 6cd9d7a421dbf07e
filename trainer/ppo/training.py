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
import threading
import time
from pathlib import Path

import numpy as np
import torch

from ..config import RunConfig, check_batch
from ..course.course import Course
from ..environments import ASYNC, VectorEnv, groups, kind_of, make
from ..errors import DivergedError
from ..evaluate import envs_for, play
from ..events import EventSink, RunResult, Start, Stopped
from ..machine import checkpoint as checkpoints
from ..machine.distributed import World
from ..machine.precision import Arithmetic, env_threads
from ..machine.stopwatch import Stopwatch
from ..model.policy import Policy
from .collector import Collector, Snapshot
from .rollout import Rollout
from .schedule import Schedule
from .scores import Scores
from .state import TrainingState
from .update import PPO
from .warm_up import decided


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
        self._world, self._arithmetic = world, arithmetic
        self._config, self._device, self._threads, self._report, self._stop = config, device, threads, report, stop
        self._course = Course(
            train,
            total_steps=train.total_timesteps,
            steps_name="train.total_timesteps",
            directory=directory,
            report=report,
            stop=stop,
            world=world,
            speed=speed,
        )
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
        self._warmed_up = False
        self._progress = 1.0  # of the run's schedule, in the middle of the last batch

    def go_on(self, path: Path) -> None:
        """Goes on with a shorter run from its checkpoint: the last one, with `wsd` that before the step size fell.

        Steps count from the first one of the shorter run, seconds from here. The result equals that of a longer run in
        one go, as far as random numbers and episodes can be restored, where the shorter run's steps were a whole number
        of iterations. One thing differs: the warm-up was that of the shorter run and is not made again.
        """
        self._course.go_on(path, self._restore)
        self._warmed_up = True

    def resume(self, path: Path) -> None:
        """Continues from a checkpoint of the same environment, network and number of environments.

        Where that run had gone on with a shorter one, it still does: the shorter one's checkpoint is not needed.
        """
        self._course.resume(path, self._restore)
        self._warmed_up = self._course.first_step > 0

    def _restore(self, path: Path) -> tuple[int, float, int]:
        return self._state.read_(path, self._config)

    def run(self, started: float) -> RunResult:
        notes = [] if self._course.resumed else self._begin()
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
        self._course.save_last(self._write)
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
        return self._course.end(
            score=score,
            timings=timings,
            metrics=metrics,
            stopped=stopped,
            interrupted=interrupted,
            stays=self._schedule.stays(self._progress),
        )

    @property
    def steps(self) -> int:
        """Steps that were made, of all processes."""
        return self._course.steps

    @property
    def spent_seconds(self) -> float:
        """Seconds of training so far, including those of an iteration that is running or has failed."""
        return self._course.spent_seconds

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
        course, stopped = self._course, None
        course.begin()
        if train.overlap:  # both threads use these settings, so they must not change while one of them computes
            self._prepare(train.minibatch_size // world.size)
        while course.steps < train.total_timesteps:
            save = course.checkpoint_due
            # Only between batches, where the state is complete: then a resumed run equals the uninterrupted one.
            if not self._collector.in_flight:
                if save:
                    save = False
                    course.save(self._write)
                if self._schedule.decay_is_next(course.steps):
                    course.save_stable(self._write)
                stopped = course.ended()
                if stopped:
                    break
            until = course.begin_step()
            stopwatch.switch("other")
            if not train.overlap:
                self._prepare(agents // world.size)
            batch, finished = self._collector.take(self._schedule.horizon(course.steps), until)
            batch = self._rollout.settle(batch, world)
            taken = len(batch) * world.size
            progress = self._schedule.progress(course.steps, taken, warmed_up=self._warmed_up)
            self._progress = progress
            course.steps += taken
            # A checkpoint or an end that is due comes after this batch, so no other is begun.
            ends = save or self._schedule.decay_is_next(course.steps) or course.ended() is not None
            if train.overlap and not ends and time.perf_counter() < until and course.steps < train.total_timesteps:
                self._collector.begin(self._schedule.horizon(course.steps), until)
            self._prepare(min(train.minibatch_size // world.size, len(batch)))
            try:
                self._figures |= self._ppo.update(batch, progress, until)
            except DivergedError as error:
                raise DivergedError(f"diverged at step {course.steps}: {error}") from error
            stopwatch.switch("logging")
            self._scores.add(course.steps, finished.score.tolist(), len(finished))
            stopwatch.stop()
            course.end_step()
            if course.report_due:
                self._measure()
        if course.unreported:
            self._measure()
        return stopped or "steps"

    def _prepare(self, rows: int) -> None:
        self._arithmetic.prepare(rows, self._policy.largest_layer)

    def _measure(self) -> None:
        recent = self._scores.summary()
        self._course.report(
            recent.mean,
            {**self._figures, "learning_rate": self._ppo.learning_rate, "episodes": recent.episodes},
            self._stopwatch,
        )

    def _write(self, path: Path) -> None:
        course = self._course
        self._state.write(
            path,
            self._config,
            steps=course.steps,
            elapsed_seconds=course.elapsed,
            first_step=course.first_step,
        )


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
