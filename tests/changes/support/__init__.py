"""What the tests of change streams share: a source database, its changes, and what must come of them."""
