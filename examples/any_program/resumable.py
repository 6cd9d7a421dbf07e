import argparse
import pickle
import time

import protein

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--steps", type=int)
given = parser.parse_args()

trial = protein.trial()  # None outside a sweep
state = {"step": 0, "loss": 1.0}
saved = trial.checkpoint_directory / "state" if trial else None
if saved and saved.exists():  # an earlier process of this trial was interrupted
    state = pickle.loads(saved.read_bytes())

while state["step"] < given.steps:
    state["step"] += 1
    state["loss"] *= 1 - given.rate * (0.5 - given.rate)
    time.sleep(0.01)
    protein.report(state["step"], -state["loss"])  # does nothing outside a sweep
    if saved and state["step"] % 10 == 0:
        saved.with_suffix(".new").write_bytes(pickle.dumps(state))
        saved.with_suffix(".new").replace(saved)  # so that a kill leaves the old or the new state
print("loss", state["loss"])
