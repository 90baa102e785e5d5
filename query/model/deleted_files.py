"""What becomes of the files of a stream that is deleted."""

from enum import StrEnum


class Files(StrEnum):
    """`after-undo`: they go when the stream cannot be brought back any more; `keep`: they stay."""

    AFTER_UNDO = "after-undo"
    KEEP = "keep"
