"""One run of a language model: builds its parts, takes step after step, reports, evaluates, writes a sample.

A step of the optimiser reads `train.batch_tokens` tokens, in micro-batches (`protein.trainer.language.update`). A run's
cost is the time of its steps. Start-up, compilation, checkpoints, points of the learning curve and the final evaluation
do not count, and their seconds are reported separately. The clock may be that of another machine: see `speed` of
`protein.trainer.run.run`.

With several processes each reads its own rows of every batch. The sum of their gradients is that of the whole batch.

All random numbers of the training come from `train.seed`: the weights by a stream of their own, the order of the data
by another one. Evaluations and samples draw none of them.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from ..errors import DivergedError
from ..events import RunResult, Stopped
from ..machine import checkpoint as checkpoints
from ..machine import graphs
from ..machine.checkpoint import Checkpoint
from ..machine.cuda import to_device
from ..machine.distributed import World
from ..machine.precision import peak_flops
from ..progress import Progress, RunContext
from . import micro_batch as micro_batches
from . import sample as samples
from .config import SAMPLE_FILE, LanguageConfig
from .data import hellaswag
from .data.batches import Batches
from .data.corpus import Corpus, open_corpus
from .evaluate import Evaluator, TextLoss, answer
from .model import GPT
from .state import LanguageState
from .trained import load_released_, require_released
from .update import Updates, prepare, resolve_precision

# Together they are the time of training, and that of the learning curve, which is no cost.
SECTIONS = ("data", "copy", "forward", "backward", "gradient_sum", "optimizer", "logging", "other", "curve")
SHARE = 0.05
FORWARD_SHARE = 1 / 3  # of a training step's time that its forward pass takes: a guess for the first point
SURE = 4  # of the places, evenly over the run, are measured in every run


class LanguageTraining:
    """The parts of one run. `progress` has its counters and its clock."""

    def __init__(self, config: LanguageConfig, context: RunContext) -> None:
        train, length = config.train, config.model.sequence_length
        device, world = context.device, context.world
        self._config, self._context, self._device, self._world = config, context, device, world
        self._stopwatch = stopwatch = context.stopwatch
        stopwatch.use(SECTIONS)
        self.progress = Progress(
            train,
            context,
            total_steps=train.total_tokens,
            steps_name="train.total_tokens",
            by_time=train.schedule_end == "nearer",
        )
        self._corpus = corpus = open_corpus(config.data.path)
        self._questions = hellaswag.read_questions(Path(config.eval.hellaswag)) if config.eval.hellaswag else []
        _require_encoding(config, corpus)
        free = micro_batches.free_bytes(device)
        estimate = micro_batches.estimated_parameters(config.model, corpus.vocab_size)
        micro_batches.require_memory(estimate, 0, config.model, free)
        weights, order = (int(seed) for seed in np.random.SeedSequence(train.seed).generate_state(2, np.uint32))
        self._rows = train.batch_tokens // length // world.size  # of a step on this process
        self._batches = Batches(
            corpus.train,
            sequence_length=length,
            batch_rows=self._rows * world.size,
            seed=order,
            rank=world.rank,
            num_ranks=world.size,
        )
        self._model = GPT(config.model, corpus.vocab_size, torch.Generator().manual_seed(weights)).to(device)
        self.progress.require_writable()
        self._precision = resolve_precision(train.precision, device)
        prepare(context.arithmetic, config.model)
        self._updates = Updates(
            self._model, train, device=device, precision=self._precision, world=world, stopwatch=stopwatch
        )
        self._state = LanguageState(
            config=config,
            corpus=corpus,
            model=self._model,
            updates=self._updates,
            batches=self._batches,
            world=world,
        )
        evaluating = config.eval
        self._evaluator = Evaluator(corpus, evaluating.tokens, self._model, world)
        of_curve = evaluating.curve_tokens if evaluating.curve_points else None  # else its rows need not be chosen
        self._curve = Curve(
            Evaluator(corpus, evaluating.tokens, self._model, world, curve_tokens=of_curve),
            points=evaluating.curve_points,
            world=world,
        )
        self._micro_batch = train.micro_batch  # 0: not known yet
        self._score: float | None = None  # the last one that was measured
        self._losses = torch.zeros((), device=device)  # summed over the steps since the last report
        self._num_losses = 0
        self._norm = torch.zeros((), device=device)  # of the last step's gradient
        self._peak_flops = 0.0
        self._loss = math.nan  # of training, at the last report

    def restore(self, path: Path) -> Checkpoint:
        """Sets all parts to what a checkpoint of the same network, seed and text holds, and returns it.

        Raises:
            CheckpointError: it is of another kind of training, network, seed or text.
        """
        saved = self._state.read_(path)
        if not self._config.train.micro_batch:  # another one would round differently
            self._micro_batch = saved.micro_batch
        return saved.checkpoint

    def run(self, started: float) -> RunResult:
        progress, world = self.progress, self._world
        progress.require_room(self._state.num_bytes())
        timings = self._begin(started)
        stopped = self._train()
        progress.save(self._write)
        timings["curve"] = self._curve.seconds
        found = self._last_loss(stopped)
        world.close()  # from here on the processes share nothing
        metrics = {} if math.isnan(self._loss) else {"train_loss": self._loss}
        if found is not None:
            timings["evaluation"] = found.seconds
            metrics |= {
                "loss": found.nats_per_token,
                "bits_per_byte": found.bits_per_byte,
                "evaluation_tokens": float(found.tokens),
            }
        interrupted = self._context.stop.is_set() or found is None
        written = None
        if world.is_first and not interrupted:
            metrics |= self._answer_questions(timings)
            interrupted = self._context.stop.is_set()
        if world.is_first and not interrupted:
            written = self._write_sample(timings)
        return progress.end(
            score=None if found is None or interrupted or not world.is_first else found.score,
            timings=timings,
            metrics=metrics,
            stopped=stopped,
            interrupted=interrupted,
            sample=written,
        )

    def _begin(self, started: float) -> dict[str, float]:
        """Makes all ready for the first step and reports it; returns the seconds that this took, by part."""
        config, progress, length = self._config, self.progress, self._config.model.sequence_length
        if config.model.init_from and not progress.resumed:
            require_released(config.model, self._corpus.tokenizer)
            load_released_(self._model, Path(config.model.init_from))
        self._micro_batch = self._find_micro_batch()
        self._updates.warm(length)
        self._peak_flops = peak_flops(self._device, self._precision)
        timings = {"startup": time.perf_counter() - started}
        if config.train.compile:
            timings["compile"] = self._updates.compile((rows, length) for rows in self._parts())
        began = time.perf_counter()
        self._updates.record((rows, length, self._weight(rows)) for rows in self._parts())
        timings["startup"] += time.perf_counter() - began
        self._stopwatch.reset()
        start = progress.start(
            config.subject,
            parameters=sum(p.numel() for p in self._model.parameters()),
            startup_seconds=timings["startup"],
            compiled=self._updates.compiled,
            notes=[],
        )
        start["graphs"] = graphs.in_words({"forward and backward passes": self._updates.recorder})
        start["precision"] = self._precision
        start["micro_batch"] = self._micro_batch
        start["peak_flops"] = self._peak_flops
        self._context.report(start)
        return timings

    def _last_loss(self, stopped: Stopped) -> TextLoss | None:
        """Returns the loss on the validation text, and ends the curve with it; None after a signal."""
        found = None if stopped == "signal" else self._evaluator.measure(self._precision, self._context.stop.is_set)
        if found is not None or self.progress.unreported:
            self._measure(found)
        return found

    def _answer_questions(self, timings: dict[str, float]) -> dict[str, float]:
        if not self._questions:
            return {}
        began = time.perf_counter()
        tokenizer, stop = self._corpus.tokenizer, self._context.stop.is_set
        share = answer(self._questions, tokenizer, self._model, self._precision, stop=stop)
        timings["hellaswag"] = time.perf_counter() - began
        return {} if share is None else {"hellaswag": share}

    def _write_sample(self, timings: dict[str, float]) -> str | None:
        evaluating, path = self._config.eval, self.progress.path
        if not evaluating.sample_tokens:
            return None
        began = time.perf_counter()
        written = samples.write(
            self._model,
            self._corpus.tokenizer,
            evaluating.prompt,
            tokens=evaluating.sample_tokens,
            seed=self._config.train.seed,
        )
        timings["sample"] = time.perf_counter() - began
        if path:
            checkpoints.replace_file(path.with_name(SAMPLE_FILE), written.encode(errors="replace"))
        return written

    def close(self) -> None:
        """Nothing is held that must be closed. It may be called twice."""

    def _train(self) -> Stopped:
        """Trains until the steps are done, the time is up or a signal came. Returns which of the three."""
        progress, stopwatch, total = self.progress, self._stopwatch, self._config.train.total_tokens
        size = self._rows * self._config.model.sequence_length * self._world.size
        stopped: Stopped | None = None
        progress.begin()
        self._curve.begin(progress.steps, progress.done)
        while progress.steps < total:
            stopped = progress.between_steps(self._write, size)
            if stopped:
                break
            progress.begin_step()
            stopwatch.switch("other")
            if self._step(progress.fraction(size)):
                progress.advance(size)
            stopwatch.stop()
            progress.end_step()
            if self._curve.due(progress.steps, progress.done, progress.elapsed / self._context.speed):
                self._stopwatch.switch("curve")
                found = self._curve.measure(self._precision, self._context.stop.is_set)
                self._stopwatch.stop()
                self._measure(found)
            elif progress.report_due and progress.steps < total:
                self._measure()
        return stopped or "steps"

    def _step(self, progress: float) -> bool:
        """Takes a step of the optimiser; returns whether it was made.

        One process gives it up between two micro-batches where the time is up or a signal has come. The data then begin
        again with this step, so that a run that goes on equals one that was not stopped.
        """
        stopwatch, updates, alone = self._stopwatch, self._updates, self._world.size == 1
        place = self._batches.state()
        updates.begin()
        parts = self._parts()
        loss = torch.zeros_like(self._losses)
        for number, rows in enumerate(parts, 1):
            if alone and (self.progress.time_is_up() or self._context.stop.is_set()):
                self._batches.set_state(place)
                return False
            stopwatch.switch("data")
            found = self._batches.next(rows)
            stopwatch.switch("copy")
            inputs, targets = to_device(found[0], self._device), to_device(found[1], self._device)
            documents = None if found[2] is None else to_device(found[2], self._device)
            loss += updates.add(
                inputs,
                targets,
                documents,
                weight=self._weight(rows),
                last=number == len(parts),
            )
        self._norm = updates.step(progress)
        stopwatch.switch("other")
        self._losses += loss
        self._num_losses += 1
        # This waits for the device. So the clock stops when the step is done, and not when it is in the device's queue.
        self._check(float(loss), float(self._norm))
        return True

    def _parts(self) -> list[int]:
        """Returns the rows of each micro-batch of a step on this process."""
        whole, rest = divmod(self._rows, self._micro_batch)
        return [self._micro_batch] * whole + ([rest] if rest else [])

    def _weight(self, rows: int) -> float:
        """Returns the share of a micro-batch of some rows in the step's loss."""
        return rows / (self._rows * self._world.size)

    def _measure(self, found: TextLoss | None = None) -> None:
        """Reports a point of the learning curve, with its score where one was `found`; all processes call this."""
        self._stopwatch.switch("logging")
        sums = torch.stack([self._losses, self._norm / self._world.size])
        loss, norm = self._world.sum_(sums).tolist()
        self._stopwatch.stop()
        self._check(loss, norm)
        if found is not None and not math.isfinite(found.nats_per_token):
            # The weights of a step are not finite, and no training step has read them yet.
            raise DivergedError(self._diverged("the loss on the validation text"))
        metrics = {"gradient_norm": norm, "learning_rate": self._updates.optimizer.learning_rate}
        if self._num_losses:
            self._loss = loss / self._num_losses
            self._losses, self._num_losses = torch.zeros_like(self._losses), 0
        if not math.isnan(self._loss):
            metrics["train_loss"] = self._loss
        progress = self.progress
        flops = (
            self._model.flops_per_token
            * self._context.speed
            * (progress.steps - progress.first_step)
            / max(progress.elapsed, 1e-9)
        )
        metrics["flops_per_second"] = flops
        metrics["peak_share"] = flops / self._world.size / self._peak_flops
        if found is not None:
            metrics |= {"loss": found.nats_per_token, "bits_per_byte": found.bits_per_byte}
            self._score = found.score
        progress.report(None if found is None else found.score, metrics)

    def _check(self, *figures: float) -> None:
        if self._updates.optimizer.exhausted or not all(map(math.isfinite, figures)):
            raise DivergedError(self._diverged("a loss or gradient"))

    def _diverged(self, what: str) -> str:
        return (
            f"diverged at step {self.progress.steps}: {what} is not finite: lower train.learning_rate,"
            " train.embedding_learning_rate or train.max_grad_norm"
        )

    def _find_micro_batch(self) -> int:
        """Returns how many rows go through the network at once, on every process the same number."""
        length, model = self._config.model.sequence_length, self._model
        if self._device.type == "cuda":
            if self._micro_batch:
                return min(self._micro_batch, self._rows)
            found = self._try_micro_batches(length)
        else:
            free = micro_batches.free_bytes(self._device)
            per_row = micro_batches.row_bytes(model, length)
            parameters = sum(parameter.numel() for parameter in model.parameters())
            micro_batches.require_memory(parameters, per_row, self._config.model, free)
            if self._micro_batch:
                return min(self._micro_batch, self._rows)
            fitting = int(micro_batches.MEMORY_SHARE * free / self._world.local_size / per_row)
            found = max(1, min(fitting, micro_batches.cached_rows(model.width, length)))
        smallest = -self._world.largest(-found)
        return micro_batches.even_rows(self._rows, int(smallest))

    def _try_micro_batches(self, length: int) -> int:
        def attempt(rows: int) -> None:
            micro_batches.reset_peak(self._device)
            tokens = torch.zeros(rows, length, dtype=torch.int64, device=self._device)
            self._updates.add(tokens, tokens, tokens, weight=1.0, last=False)

        parameters = sum(parameter.numel() for parameter in self._model.parameters())
        found = micro_batches.largest_fitting(
            self._rows,
            attempt,
            lambda: micro_batches.free_bytes(self._device),
            # What an update takes for a moment; weights, gradients and moments are there already.
            reserved=micro_batches.STATE_BYTES // 2 * parameters,
        )
        micro_batches.reset_peak(self._device)
        return found

    def _write(self, path: Path) -> None:
        self._state.write(path, self.progress, score=self._score, micro_batch=self._micro_batch)


class Curve:
    """The learning curve: the score on a fixed part of the validation text, at some places of a run.

    Its time is no cost, but somebody waits for it. So apart from the quarters of a run, which are always measured, it
    may take at most `SHARE` of the time of training: where a point would take more, it is left out, and the next place
    is looked at. The run's end is no place of its own: the score itself is measured there.
    """

    def __init__(self, evaluator: Evaluator, *, points: int, world: World) -> None:
        """`points`: how many places there are; the last one is the run's end."""
        self._evaluator, self._points, self._world = evaluator, points, world
        self._passed = 0  # places, of `points`
        self._longest: float | None = None  # seconds of a measurement
        self.seconds = 0.0  # of all measurements, on this machine's clock
        self._first_steps = 0

    def begin(self, steps: int, done: float) -> None:
        """Begins after `steps`, where the share `done` of the run is made; the places before have been looked at."""
        self._first_steps, self._passed = steps, self._place(done)

    def due(self, steps: int, done: float, seconds: float) -> bool:
        """Whether a point is due. All processes have to ask this alike.

        Args:
            steps: that are made.
            done: the share of the run, in [0, 1].
            seconds: of training.
        """
        before, self._passed = self._passed, self._place(done)
        if self._passed == before or self._passed >= self._points:
            return False
        sure = SURE * self._passed // self._points > SURE * before // self._points
        made = max(steps - self._first_steps, 1)
        guess = FORWARD_SHARE * self._evaluator.tokens * seconds / made
        expected = guess if self._longest is None else self._longest
        # Each process has measured its own seconds, and all must decide alike.
        late = self.seconds + expected > SHARE * seconds
        return sure or not self._world.agree(late, 0.0)[0]

    def measure(self, precision: str, stop: Callable[[], bool]) -> TextLoss | None:
        """Returns the loss now; None where `stop` interrupted it. All processes have to call this."""
        found = self._evaluator.measure(precision, stop)
        if found is not None:
            self.seconds += found.seconds
            self._longest = max(self._longest or 0.0, found.seconds)
        return found

    def _place(self, done: float) -> int:
        """Returns how many places lie behind a share of the run."""
        return int(self._points * done + 1e-9)


def _require_encoding(config: LanguageConfig, corpus: Corpus) -> None:
    """Encodes what the run's end will need. Raises `DataError` where the tokenizer cannot."""
    if config.eval.sample_tokens:
        samples.begin(corpus.tokenizer, config.eval.prompt)
    if config.eval.hellaswag:
        corpus.tokenizer.encode(b"a")
