"""The native core, and what it gives: text columns of records.

Without it everything runs on the exact path.
"""
