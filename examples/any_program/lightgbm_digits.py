"""LightGBM on scikit-learn's digits: it prints its loss as LightGBM does, and knows nothing of sweeps."""

import argparse

import lightgbm
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=100)
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--leaves", type=int, default=31)
parser.add_argument("--min_leaf", type=int, default=20)
given = parser.parse_args()

x, x_test, y, y_test = train_test_split(*load_digits(return_X_y=True), test_size=0.4, random_state=0)
train = lightgbm.Dataset(x, y)
settings = {
    "objective": "multiclass",
    "num_class": 10,
    "learning_rate": given.rate,
    "num_leaves": given.leaves,
    "min_data_in_leaf": given.min_leaf,
    "num_threads": 1,
    "verbose": -1,
}
test = lightgbm.Dataset(x_test, y_test, reference=train)
lightgbm.train(settings, train, given.rounds, valid_sets=[test], callbacks=[lightgbm.log_evaluation(1)])
