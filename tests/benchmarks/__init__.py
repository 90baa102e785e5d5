"""Benchmarks, run by hand; results with machine and date stand in RESULTS.md."""
