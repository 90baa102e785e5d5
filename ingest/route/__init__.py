"""Which table a record belongs to, and the buffers of these tables."""
