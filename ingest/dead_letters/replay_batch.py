"""Dead letters that may be sent again, in batches that are looked for in their tables at once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ingest.dead_letters.rows_there import Identity
from ingest.decode.dead_letter import DeadLetter
from lake.tenant import TableId

# Each batch reads the tables' manifests anew, and waits in memory with its values.
BATCH_LETTERS, BATCH_BYTES = 50_000, 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Ready:
    """A dead letter that may be sent, masked by the rules of today."""

    letter: DeadLetter
    value: bytes | None
    table: TableId


def batches(ready: Iterable[Ready]) -> Iterator[list[Ready]]:
    """Batches of at most so many, and of at most so many bytes of values; a larger value is alone."""
    batch: list[Ready] = []
    size_bytes = 0
    for one in ready:
        size = len(one.value or b"")
        if batch and (len(batch) == BATCH_LETTERS or size_bytes + size > BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(one)
        size_bytes += size
    if batch:
        yield batch


def by_table(batch: Iterable[Ready]) -> dict[TableId, set[Identity]]:
    """The records of each table."""
    found: dict[TableId, set[Identity]] = {}
    for one in batch:
        found.setdefault(one.table, set()).add(one.letter.identity)
    return found
