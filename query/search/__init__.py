"""One search: its files, its rows, how complete it is and what it costs."""
