"""Running a sweep: the loop, its trials in the store, what one trial is run with, and where it runs (`backends/`)."""
