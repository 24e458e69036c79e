"""What is measured, each by a command of its own that writes what it found into benchmarks/results."""
