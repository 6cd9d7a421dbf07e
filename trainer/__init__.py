"""One training run: configuration, vectorised rollouts, policy, PPO, checkpoints. Runs alone: `python -m trainer`."""
