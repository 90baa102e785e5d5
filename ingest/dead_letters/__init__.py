"""Records that no table takes: written, listed, sent again, erased."""
