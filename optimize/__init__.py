"""Table maintenance: planned here, executed on Spark."""
