"""The seams of the sweep: what the loop asks of a designer, a store and a backend, and what it tells a listener.

The loop knows only these protocols, so an algorithm never learns where a trial runs or where it is stored. Each
protocol is a module and a written contract; `tests/contracts/` holds every implementation to it.
"""

from protein.ports.backend import Backend, Finished, Job, TrialProgress
from protein.ports.designer import Designer
from protein.ports.listener import ConfirmationStatus, Listener, SweepStatus
from protein.ports.store import Store, Wishes

__all__ = [
    "Backend",
    "ConfirmationStatus",
    "Designer",
    "Finished",
    "Job",
    "Listener",
    "Store",
    "SweepStatus",
    "TrialProgress",
    "Wishes",
]
