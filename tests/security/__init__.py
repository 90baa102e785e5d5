"""Isolation against a hostile tenant: every finding of the inspection, tried again on the real services."""
