"""A sweep that the campaign disturbs, as a process of its own; see `faults.sweeps`."""

import sys

from protein.__main__ import quiet_interrupts


def main() -> int:
    # The imports take a second. Where Ctrl-C comes then, or while Python ends, there is nothing to end in order.
    quiet_interrupts()
    from tests.faults import sweeps

    return sweeps.main()


if __name__ == "__main__":
    sys.exit(main())
