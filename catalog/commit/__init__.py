"""One commit: requirements, updates, metadata of the table, the queue and the answer kept for a retry."""
