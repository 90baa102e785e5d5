"""One file per shape of log; each gives one event or line at a moment, from seeded draws alone."""
