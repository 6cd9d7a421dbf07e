"""Runs one unattended night with faults and writes docs/night.md: `python scripts/night.py --hours 6`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "benchmarks"), str(ROOT)]
    from tests.faults import night

    sys.exit(night.main())
