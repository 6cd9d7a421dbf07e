"""`python -m protein` is `protein`."""

import sys

from protein.cli import main

sys.exit(main())
