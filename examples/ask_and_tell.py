import dataclasses
import json
import math

from protein import Categorical, Float, Integer, Observation, Protein, Space


def train(params):  # stands for your training: returns a score and what it cost, here made up
    seconds = params["steps"] / 1e6
    skill = 1.0 - abs(math.log10(params["lr"]) + 2.5) / 4 + (0.1 if params["opt"] == "muon" else 0.0)
    return skill * (1 - math.exp(-3 * seconds)), seconds


space = Space(
    [
        Float("lr", 1e-5, 1e-1, scale="log"),
        Integer("steps", 10_000, 10_000_000, scale="log"),
        Categorical("opt", ("adam", "muon")),
    ],
    cost_parameter="steps",  # may be left out: the engine then finds out what is expensive
)
engine = Protein(space, seed=0, budget_seconds=60.0, max_trials=40)
while (suggestion := engine.suggest()) is not None:  # has params, origin, predicted_score, predicted_cost_seconds
    score, seconds = train(suggestion.params)
    engine.observe(suggestion.params, score=score, cost_seconds=seconds)  # or failed="diverged", cost_seconds=seconds

print(engine.ended)
print(engine.best())  # the expected true score of the recommended config, its cost, how often it was run

kept = json.dumps([dataclasses.asdict(one) for one in engine.observations])  # all that has to be kept
again = Protein(space, budget_seconds=90.0, observations=[Observation(**fields) for fields in json.loads(kept)])
print(again.suggest())  # the search goes on, here with a larger budget
