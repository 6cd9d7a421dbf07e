"""What can be said about sweeps from their trials: pure functions, without reading, printing or drawing."""
