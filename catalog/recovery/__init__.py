"""The database made anew from the warehouse, and both compared."""
