"""What any training needs of the machine: device and precision, processes, clock, checkpoints."""
