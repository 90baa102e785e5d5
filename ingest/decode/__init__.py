"""Bytes of a message to records: JSON, lines of text, OTLP, messages sent again."""
