"""What a DuckDB keeps of the files that it has read, for as long as it lives."""

from collections.abc import Sequence

from lake.token_filter.builder import GROUP_ROWS
from query.files.file_index import LiveFile

# Of each column of a row group: its metadata, and where in the file its parts are. Measured with DuckDB 1.5:
# 1.0 to 2.7 KiB, which neither its `memory_limit` nor anything else bounds.
COLUMN_BYTES = 2_048


class KeptOfFiles:
    """How much that is by now. For one thread at a time."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._known = set[int]()  # hashes of URIs

    def note(self, files: Sequence[LiveFile], columns: int) -> None:
        """Files that are read; `columns`: of their table, for those that do not say which they have."""
        for file in files:
            known = hash(file.uri)
            if known not in self._known:
                self._known.add(known)
                found = len(file.value_counts) if file.value_counts else columns
                self._bytes += COLUMN_BYTES * found * (1 + file.rows // GROUP_ROWS)

    @property
    def is_too_much(self) -> bool:
        """Whether it is more than it may be."""
        return self._bytes > self._bytes_max
