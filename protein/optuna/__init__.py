"""Optuna and the engine: Optuna's samplers as designers, and the engine as a sampler of Optuna."""
