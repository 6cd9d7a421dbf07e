"""Pictures of sweeps with matplotlib. Each function returns a figure and writes nothing. `protein.plots` opens the
store for them."""
