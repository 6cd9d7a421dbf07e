"""The events of a run as plain dicts, for tests that look into them."""

from typing import Any

from protein.trainer.events import Event

# Measurements are due by the run's clock. At this `speed` none is due before the end, so that a run reports just one,
# however slow or busy the machine is.
ONE_MEASUREMENT = 1e-6


class EventLog(list[dict[str, Any]]):
    """All events that a run has reported, in their order. Any key of any event can be read without telling kinds apart.

    Give `record` to the run as its `report`.
    """

    def record(self, event: Event) -> None:
        self.append(dict(event))
