"""Runs the campaign of faults (`tests/faults`): `python scripts/faults.py --kills 200 --seed 0`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "benchmarks"), str(ROOT)]
    from tests.faults import campaign

    sys.exit(campaign.main())
