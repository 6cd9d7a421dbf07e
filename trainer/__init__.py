"""One training run: config, vectorised rollouts, policy, PPO, checkpoints. Runs alone: `python -m protein.trainer`."""
