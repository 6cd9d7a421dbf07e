"""Running a sweep: the loop, its trials in the store, what begins and ends them, and how all of it is resumed."""
