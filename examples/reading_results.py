import json
import subprocess
import sys


def protein(*words):
    """Returns what a command of `protein` prints as JSON; run examples/function_sweep.py first, in the same folder."""
    return json.loads(subprocess.run([sys.executable, "-m", "protein", *words, "--json"], check=True, stdout=subprocess.PIPE).stdout)


best = protein("best", "mine")
print("recommended:", best["params"], "expected score:", best["expected_score"], "seconds:", best["expected_cost_seconds"])

for trial in protein("pareto", "mine")["front"]:
    print(f"{trial['cost_seconds']:.3f} s buys a score of {trial['score']:.2f} with {trial['params']}")

for trial in protein("show", "mine")["trials"]:
    if trial["predicted_score"] is not None and trial["score"] is not None:
        low, high = trial["predicted_score"]["low"], trial["predicted_score"]["high"]
        inside = "inside" if low <= trial["score"] <= high else "outside"
        print(f"trial {trial['number']}: {trial['score']:.2f} is {inside} its 80 % interval; {trial['origin']}")
