"""The executable model of the protocol, and what tries to break it."""
