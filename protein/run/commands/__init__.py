"""Sweeps over a command: how it is filled with a trial's values, and how its score is read."""
