"""A campaign of faults against real sweeps: what is killed, stopped or filled at random moments, and what must hold.

`python scripts/faults.py --kills 200 --seed 0` runs it; docs/faults.md says what it found.
"""
