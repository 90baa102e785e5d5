"""Who did what: events that show when one of them is removed, and their way to Kafka."""
