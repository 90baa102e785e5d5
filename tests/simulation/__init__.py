"""Months of a lake in an hour: the real catalog, writers, commits, maintenance and searches, on a clock
that the simulation moves."""
