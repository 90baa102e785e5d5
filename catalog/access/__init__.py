"""Keys, and where a key may place files."""
