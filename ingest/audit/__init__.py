"""Compares what Kafka holds with what the tables hold, record by record."""
