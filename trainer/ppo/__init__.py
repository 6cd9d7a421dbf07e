"""Training by PPO: experience, advantages, the loss and its gradient, the update, and the loop of one run."""
