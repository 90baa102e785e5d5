"""The stages of the fan-out, one by one; no service is needed."""
