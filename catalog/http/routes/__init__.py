"""The HTTP routes, one file per noun of the protocol."""
