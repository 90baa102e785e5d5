"""What is asked and set of tables: retention, types, dropped streams, maintenance."""
