"""The verbs of `python -m query`."""
