"""A sweep that the campaign disturbs, as a process of its own; see `faults.sweeps`."""

import os
import signal
import sys


def main() -> int:
    # The imports take a second. Where Ctrl-C comes then, there is nothing to end in order.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from tests.faults import sweeps

    return sweeps.main()


if __name__ == "__main__":
    sys.exit(main())
