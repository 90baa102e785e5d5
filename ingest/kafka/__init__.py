"""Kafka's clients: reading, offsets, lag, and Firn's own topics."""
