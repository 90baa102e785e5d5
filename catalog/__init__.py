"""The Iceberg REST catalog: metadata changed as plain JSON, swapped by compare-and-set in one SQL
transaction."""
