"""Search: from words to rows, and the HTTP API in front of it."""
