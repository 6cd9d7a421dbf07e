"""Both ways between Optuna and the engine: Optuna's samplers as designers, the engine as a sampler of Optuna."""
