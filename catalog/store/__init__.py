"""The database and the metadata files, and names in both."""
