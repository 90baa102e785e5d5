"""The HTTP service and its routes."""
