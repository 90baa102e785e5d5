"""Columns to Parquet files of a flush."""
