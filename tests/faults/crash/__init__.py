"""Real processes that are killed."""
