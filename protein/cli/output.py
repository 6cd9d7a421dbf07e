"""What commands print for scripts."""

import json
import sys
from typing import Any


def print_json(value: Any) -> None:
    """Prints one JSON value; its keys are stable."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")
