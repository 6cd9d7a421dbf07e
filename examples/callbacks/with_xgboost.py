import argparse

import numpy as np
import xgboost

import protein.callbacks.xgboost

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--rounds", type=int)
given = parser.parse_args()

x = np.random.default_rng(0).normal(size=(400, 4))
y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
train, test = xgboost.DMatrix(x[:300], y[:300]), xgboost.DMatrix(x[300:], y[300:])
callback = protein.callbacks.xgboost.ProteinCallback("test-rmse")
xgboost.train(
    {"eta": given.rate, "nthread": 1},
    train,
    num_boost_round=callback.left(given.rounds),
    evals=[(test, "test")],
    verbose_eval=False,
    xgb_model=callback.checkpoint,
    callbacks=[callback],
)
