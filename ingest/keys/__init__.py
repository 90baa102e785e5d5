"""The keys of keyed tables: their hashes, one index per data file, and which rows hold a key now."""
