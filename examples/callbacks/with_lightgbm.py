import argparse

import lightgbm
import numpy as np

import protein.callbacks.lightgbm

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--rounds", type=int)
given = parser.parse_args()

x = np.random.default_rng(0).normal(size=(400, 4))
y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
train, test = lightgbm.Dataset(x[:300], y[:300]), lightgbm.Dataset(x[300:], y[300:])
callback = protein.callbacks.lightgbm.ProteinCallback("valid_0's l2")
if rounds := callback.left(given.rounds):
    lightgbm.train(
        {"objective": "regression", "learning_rate": given.rate, "num_threads": 1, "verbose": -1},
        train,
        num_boost_round=rounds,
        valid_sets=[test],
        init_model=callback.checkpoint,
        callbacks=[callback],
    )
