"""The events of a run as plain dicts, for tests that look into them."""

from typing import Any

from protein.trainer.events import Event


class EventLog(list[dict[str, Any]]):
    """All events that a run has reported, in their order. Any key of any event can be read without telling kinds apart.

    Give `record` to the run as its `report`.
    """

    def record(self, event: Event) -> None:
        self.append(dict(event))
