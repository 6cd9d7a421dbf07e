"""Running a sweep: the loop, what one trial is run with, who runs it, and where (`backends/`)."""
