"""Change streams: tables that follow a database."""
