"""What a sweep's trials tell: pure functions of spaces and trials. Nothing here prints, draws, or reads a file."""
