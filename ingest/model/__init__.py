"""Values that all parts of the room know: where rows come from, what processes tell each other, what went
wrong."""
