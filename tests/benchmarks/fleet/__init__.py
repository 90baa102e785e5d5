"""What a fleet of very many tables costs: `python -m tests.benchmarks.fleet --help`."""
