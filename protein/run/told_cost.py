"""What running trials cost by the wall clock, told now and then: a trial may be silent until its end."""

LEAST_SECONDS = 1.0
LEAST_SHARE = 0.01


class ToldCost:
    """Decides when the cost of one running trial is told again: when it has grown by a second and by a hundredth."""

    def __init__(self) -> None:
        self._told = 0.0

    def news(self, seconds: float | None) -> float | None:
        """Returns the cost if it is to be told now.

        Args:
            seconds: what the trial has cost by now; None: it tells that itself.
        """
        if seconds is None or seconds < self._told + max(LEAST_SECONDS, LEAST_SHARE * self._told):
            return None
        self._told = seconds
        return seconds
