"""Values that all parts of the room know: identifiers, errors, fields of JSON, metrics."""
