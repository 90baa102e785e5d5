"""Change streams of a real database, under faults."""
