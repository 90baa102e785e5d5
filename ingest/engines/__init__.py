"""Who runs the pipeline: one node (`local`)."""
