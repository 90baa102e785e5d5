"""Messages of a table's buffer to changes of its rows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from ingest.changes.change import Cells, Change, Op, PassedOver, ReadOptions
from ingest.changes.registry import CHANGE_FORMATS
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from lake.errors import Reason, Rejected
from lake.settings import ChangeOrder, ChangeSettings


class Step(NamedTuple):
    """What a change does to one key. `ordinal`: of its message in the buffer. `row`: what the key's row is
    afterwards; None: there is none. `change`: what it is a part of."""

    ordinal: int
    key: Cells
    row: Cells | None
    change: Change


class OfMessage(NamedTuple):
    """A change, and the ordinal of its message in the buffer."""

    ordinal: int
    change: Change


@dataclass(slots=True)
class ReadChanges:
    """What the messages of a buffer say. `rejected`: ordinals and reasons. `passed_over`: messages that
    change no row, by what they are. `committed`: messages below the table's marks."""

    changes: list[OfMessage] = field(default_factory=list)
    rejected: list[tuple[int, Rejected]] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    committed: int = 0


def read_changes(
    buffer: TableBuffer, sources: Sequence[Source], marks: Sequence[int], depth_max: int
) -> ReadChanges:
    """Reads all messages that the table does not have yet, in the order in which they were routed."""
    found = ReadChanges()
    for ordinal in range(len(buffer)):
        source = buffer.sources[ordinal]
        if buffer.offsets[ordinal] < marks[source]:
            found.committed += 1
            continue
        read = _read(buffer, ordinal, sources[source], depth_max)
        if isinstance(read, Rejected):
            found.rejected.append((ordinal, read))
        elif isinstance(read, PassedOver):
            found.passed_over[read.notice.value] += 1
        else:
            found.changes.append(OfMessage(ordinal, read))
    return found


def _read(
    buffer: TableBuffer, ordinal: int, source: Source, depth_max: int
) -> Change | PassedOver | Rejected:
    settings = source.changes
    if settings is None:
        return Rejected(
            Reason.KEY_MISSING,
            f"the table has a key, and topic {source.topic} holds records, not changes; set `changes` of the "
            "topic, or let its rules name another stream",
        )
    read = CHANGE_FORMATS[settings.format]
    return read(
        buffer.keys[ordinal],
        buffer.values[ordinal],
        buffer.headers[ordinal],
        _options(settings, depth_max),
    )


@lru_cache(maxsize=1_024)
def _options(settings: ChangeSettings, depth_max: int) -> ReadOptions:
    return ReadOptions(settings.key, settings.placeholder, depth_max)


@dataclass(slots=True)
class Steps:
    """What changes do to keys, in order. `truncations`: before which steps the table was emptied. `repeats`:
    how many only say again that a row is gone. `rejected`: ordinals and reasons."""

    steps: list[Step] = field(default_factory=list)
    truncations: list[int] = field(default_factory=list)
    repeats: int = 0
    rejected: list[tuple[int, Rejected]] = field(default_factory=list)


def steps_of(changes: Sequence[OfMessage], order_by: ChangeOrder) -> Steps:
    """Takes changes apart into steps of single keys."""
    found = Steps()
    for ordinal, change in changes:
        if change.unavailable:
            found.rejected.append((ordinal, _not_sent(change)))
        elif change.op is Op.TRUNCATE:
            found.truncations.append(len(found.steps))
        elif change.repeats_delete and order_by != "offset":
            found.repeats += 1  # it has no position, and would seem older than everything
        else:
            _add(found.steps, ordinal, change)
    return found


def _add(steps: list[Step], ordinal: int, change: Change) -> None:
    if change.op is Op.DELETE:
        steps.append(Step(ordinal, change.key, None, change))
        return
    # Where an update moves a row to another key, no message of its own deletes the old one.
    if change.op is Op.UPDATE and change.old_key is not None:
        steps.append(Step(ordinal, change.old_key, None, change))
    steps.append(Step(ordinal, change.key, change.row, change))


def _not_sent(change: Change) -> Rejected:
    columns = ", ".join(sorted(change.unavailable))
    return Rejected(
        Reason.UNSTORABLE,
        f"the source did not send the values of {columns}; set REPLICA IDENTITY FULL for its table, so that "
        "they come with every change",
    )
