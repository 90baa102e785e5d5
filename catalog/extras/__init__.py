"""What Firn asks beyond Iceberg's REST protocol: leases, parked tables, work lists, names to be undone."""
