"""People's SQL: read apart, guarded, run as the tenant's own user."""
