"""Files, and stretches of topics, written once beside the running node."""
