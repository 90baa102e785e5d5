"""The shared vocabulary; no service is needed."""
