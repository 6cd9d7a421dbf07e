"""Writes a sweep's trials to other tools: Neptune, MLflow, Weights & Biases, TensorBoard, Trackio.

    tracker.py     the protocol that every tracker follows, what it is given, and all by name
    facts.py       what is written of a trial, the same names everywhere
    exporter.py    from the store to one tracker, in batches, and what has been written so far, durably

Each tracker is a module of the tool's name. It runs in a process of its own (`protein.api.trackers`), which reads the
store: nothing here can slow, fail or stop a trial or a sweep.
"""
