"""Files of a flush to a commit of the table, once; what the node knows of each table."""
