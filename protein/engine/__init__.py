"""The engine: what to try next, given every finished trial. Pure functions; it knows no store and no process."""
