"""Who runs the pipeline: worker processes of one node (`local`), or executors of Spark (`spark`)."""
