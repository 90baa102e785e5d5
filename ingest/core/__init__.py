"""The native core, and what it gives: text columns of records, and Parquet files of few rows.

Without it records take the exact path, and pyarrow writes all files.
"""
