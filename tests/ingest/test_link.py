"""What the processes of a node say to each other of many tables at once."""

import pickle
from collections.abc import Sequence

from ingest.model.link import Submit, WrittenFlush, new_columns
from lake.log_schema import new_log_schema, shared_schema
from lake.tenant import TableId, TenantId

COLUMNS = {f"column_{number}": (100 + number, f"column {number}") for number in range(50)}


def _flush(tenant: str) -> WrittenFlush:
    """Of a table that gets all these columns, by schemas as they came through the pipe."""
    before, after = new_log_schema(), new_log_schema().with_strings(COLUMNS, 1)
    new = new_columns(
        shared_schema(bytes(bytearray(before.encoded))), shared_schema(bytes(bytearray(after.encoded)))
    )
    return WrittenFlush(TableId(TenantId(tenant), "logs"), "uuid", {}, [], 1, new)


def _bytes(flushes: Sequence[WrittenFlush]) -> int:
    return len(pickle.dumps(Submit(flushes)))


def test_a_message_holds_columns_once_that_many_tables_get_alike() -> None:
    """Ten thousand tables of one shipper are new together."""
    flushes = [_flush(f"tenant-{number}") for number in range(100)]
    assert flushes[0].new.keys() == COLUMNS.keys()
    columns_bytes = len(pickle.dumps(flushes[0].new))
    assert columns_bytes > 1_000
    assert _bytes(flushes) - _bytes(flushes[:1]) < 99 * columns_bytes / 4
    assert pickle.loads(pickle.dumps(Submit(flushes))) == Submit(flushes)
