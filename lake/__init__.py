"""The vocabulary every room shares: tenant, log schema, table layout, marks, commit, storage, settings,
errors."""
