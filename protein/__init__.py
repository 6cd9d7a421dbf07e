"""Protein: cost-aware hyperparameter sweeps."""
