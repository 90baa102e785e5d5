"""What changes of rows do to a stream, by what its table says: mode, key, order, buckets, and how many there
were."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import orjson

from lake.change_counts import change_counts
from lake.log_schema import COLUMNS_MAX, NAME_BYTES_MAX
from lake.settings import ChangeMode
from lake.table_layout import KEY_PROPERTY, MODE_PROPERTY, ORDER_PROPERTY, buckets_of_spec
from query.model.table_view import TableView

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RowChanges:
    """`mode`: as a topic's setting names it; `append` of a table of records. `key`, `order_by` and `buckets`
    are of a keyed table. `counts`: changes by what became of them."""

    mode: str
    key: tuple[str, ...] = ()
    order_by: str | None = None
    buckets: int | None = None
    counts: Mapping[str, int] | None = None


def mode_of(properties: Mapping[str, str]) -> str:
    """The mode of a table; `unknown` of a keyed one that names none that there is."""
    is_keyed = KEY_PROPERTY in properties
    mode = properties.get(MODE_PROPERTY, "upsert" if is_keyed else "append")
    if mode in get_args(ChangeMode):
        return mode
    return UNKNOWN if is_keyed else "append"


def key_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a table's key; none where it has none, or where that cannot be read."""
    try:
        names = orjson.loads(properties.get(KEY_PROPERTY, "[]"))
    except orjson.JSONDecodeError:
        return ()
    columns = names[:COLUMNS_MAX] if isinstance(names, list) else []
    return tuple(name for name in columns if isinstance(name, str) and len(name) <= NAME_BYTES_MAX)


def row_changes(view: TableView) -> RowChanges:
    """What a loaded table says of changes."""
    if not view.is_keyed:
        return RowChanges(mode_of(view.properties))
    return RowChanges(
        mode_of(view.properties),
        key_of(view.properties),
        view.properties.get(ORDER_PROPERTY, "offset"),
        max(map(buckets_of_spec, view.specs.values())) or None,
        change_counts(view.properties),
    )
