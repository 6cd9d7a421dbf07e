"""PPO: experience, advantages, the loss and its gradient, the optimiser, and the loop of one run."""
