"""Counts beside a search: the histogram, fields and their values."""
