"""The verbs of `python -m ingest` that have verbs of their own."""
