"""Configuration in layers: files, stored results and flags become a run config, a search space and sweep settings."""
