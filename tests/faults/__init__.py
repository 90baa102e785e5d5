"""The protocol under faults: an executable model of it, and processes killed at its every step."""
