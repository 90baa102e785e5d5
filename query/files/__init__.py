"""Which files a table has, read from its manifests, and files kept near."""
