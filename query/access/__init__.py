"""Who may see what, and the rules that tell Trino so."""
