"""The line on the real services: Kafka in, rows out, counted by Trino; and what the tests need to drive
them."""
