"""The formats in which records come: one noun, one file."""
