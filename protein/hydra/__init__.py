"""Hydra's sweeper `hydra/sweeper=protein`: another front door to `protein sweep --command`, in Hydra's words."""
