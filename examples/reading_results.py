import json
import subprocess
import sys


def protein(*words):
    """Returns what a command prints as JSON; first run function_sweep.py in the same folder."""
    return json.loads(subprocess.check_output([sys.executable, "-m", "protein", *words, "--json"]))


best = protein("best", "mine")
expected = best["expected_score"]
print(f"recommended: {best['params']}, expected score {expected['low']:.2f} to {expected['high']:.2f}")

for trial in protein("pareto", "mine")["front"]:
    print(f"{trial['cost_seconds']:.3f} s buys a score of {trial['score']:.2f} with {trial['params']}")

for trial in protein("show", "mine")["trials"]:
    predicted, score = trial["predicted_score"], trial["score"]
    if predicted is not None and score is not None:
        inside = "inside" if predicted["low"] <= score <= predicted["high"] else "outside"
        print(f"trial {trial['number']}: {score:.2f} is {inside} its 80 % interval; {trial['origin']}")
