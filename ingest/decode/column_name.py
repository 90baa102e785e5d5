"""The column that a field of a record belongs to, and what is noted of a value that it cannot hold."""

import re
from typing import NamedTuple

from ingest.decode.formats.json_object import is_text
from lake.log_schema import NAME_BYTES_MAX, RESERVED_NAMES, ValueReason, fold
from lake.short_texts import kept_of_short_texts

_UNUSABLE = re.compile(r"[\x00-\x1f\x7f]")


class BadValue(NamedTuple):
    """An entry of `_errors`."""

    field: str
    value: str | None
    reason: ValueReason


@kept_of_short_texts(65_536)
def column_name(prefix: str, key: str) -> str:
    """The column of a key inside the object whose column prefix is given: joined with `_`, dots become `_`
    too, folded."""
    return fold((f"{prefix}_{key}" if prefix else key).replace(".", "_"))


@kept_of_short_texts(65_536)
def pointer(path: str, key: str) -> str:
    """The JSON Pointer (RFC 6901) of a key below a path."""
    return (
        f"{path}/{key.replace('~', '~0').replace('/', '~1')}" if "/" in key or "~" in key else f"{path}/{key}"
    )


@kept_of_short_texts(65_536)
def is_usable(name: str) -> bool:
    """Whether a field of that name may become a column."""
    return (
        bool(name)
        and name not in RESERVED_NAMES
        and not _UNUSABLE.search(name)
        and is_text(name)
        and len(name.encode()) <= NAME_BYTES_MAX
    )
