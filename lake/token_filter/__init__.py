"""Which words the rows of a data file have: a block of Bloom filters between Parquet's leading magic and its
first row group.

Readers of Parquet follow the footer's offsets, so none of them sees the block; file and filter are one object
for expiry, retention, erasure and purge. `letters` and `tokens` say what a token is, `bloom` is the filter of
one row group, `block` what stands in the file.
"""
