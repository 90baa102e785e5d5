"""The engines that run a search's SQL: one interface, Trino over the network and DuckDB in process."""
