"""How often a run reports and writes its checkpoint."""

REPORT_SECONDS = 0.5  # at most two measurements a second ...
REPORT_FRACTION = 0.02  # ... and at most one in each fiftieth of the run ...
REPORT_SECONDS_MAX = 10.0  # ... but at least one in this time
CHECKPOINT_SHARE = 0.01  # of the time may go to checkpoints before the end; where they take longer, there are fewer


class Pace:
    """Knows when the last report and the last checkpoint were made, in steps and in seconds of training."""

    def __init__(self, total_steps: int, checkpoint_seconds: float, processes: int) -> None:
        """`checkpoint_seconds`: between checkpoints; 0: none is due."""
        self._total_steps, self._checkpoint_seconds, self._processes = total_steps, checkpoint_seconds, processes
        self._reported_steps, self._reported_seconds = 0, 0.0
        self._saved_seconds = 0.0
        self._saving_seconds = 0.0  # that the last checkpoint took

    def begin(self, steps: int, seconds: float) -> None:
        """Counts from here on."""
        self._reported_steps, self._reported_seconds, self._saved_seconds = steps, seconds, seconds

    def report_due(self, steps: int, seconds: float) -> bool:
        since = seconds - self._reported_seconds
        due = steps - self._reported_steps >= REPORT_FRACTION * self._total_steps or since >= REPORT_SECONDS_MAX
        return due and since >= REPORT_SECONDS

    def reported(self, steps: int, seconds: float) -> None:
        self._reported_steps, self._reported_seconds = steps, seconds

    def unreported(self, steps: int) -> bool:
        """Whether steps were made since the last report."""
        return steps > self._reported_steps

    def checkpoint_due(self, seconds: float) -> bool:
        interval = self._checkpoint_seconds
        if self._processes == 1:  # several write together, and measure different times
            interval = max(interval, self._saving_seconds / CHECKPOINT_SHARE)
        return bool(self._checkpoint_seconds) and seconds - self._saved_seconds >= interval

    def saved(self, seconds: float) -> None:
        """A checkpoint that was due is written now."""
        self._saved_seconds = seconds

    def took(self, saving_seconds: float) -> None:
        """Writing a checkpoint has taken so long."""
        self._saving_seconds = saving_seconds
