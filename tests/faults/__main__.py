"""`python scripts/faults.py`."""

import sys

from faults.campaign import main

if __name__ == "__main__":
    sys.exit(main())
