"""Pipes behind a search: stages that compute with the rows that it finds."""
