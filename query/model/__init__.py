"""Values that all parts of the room know: problems, instants, limits, cancellation, tables."""
