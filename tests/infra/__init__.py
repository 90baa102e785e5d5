"""The stack on one machine, and what Firn is deployed with."""
