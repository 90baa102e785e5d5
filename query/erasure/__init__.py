"""Rows of a person taken out of tables, dead letters and parked records."""
