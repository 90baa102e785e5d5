"""One suite per interface, run against every implementation of it."""
