"""The verbs of `python -m ingest`."""
