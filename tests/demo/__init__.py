"""The demo's generators, its collector and its tally; no service is needed."""
