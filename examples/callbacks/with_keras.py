import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np

import protein.callbacks.keras

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--epochs", type=int)
given = parser.parse_args()

x = np.random.default_rng(0).normal(size=(400, 4)).astype("float32")
y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(given.rate), loss="mse")
model.fit(
    x[:300],
    y[:300],
    epochs=given.epochs,
    validation_data=(x[300:], y[300:]),
    verbose=0,
    callbacks=[protein.callbacks.keras.ProteinCallback("val_loss")],  # it also restores a trial that was interrupted
)
