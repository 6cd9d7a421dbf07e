"""A trial that does nothing, for `trial_overhead.py`. It imports nothing heavy."""

import json

RESULT = {"event": "result", "score": 1.0, "steps": 1, "elapsed_seconds": 0.01}


def main(arguments: list[str]) -> int:
    print(json.dumps(RESULT), flush=True)
    return 0
