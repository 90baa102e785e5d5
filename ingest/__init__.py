"""Kafka -> Iceberg: the multi-tenant fan-out."""
