"""Messages of a table's buffer to changes of its rows."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ingest.changes.change import Cells, Change, Op, PassedOver, ReadOptions
from ingest.changes.registry import CHANGE_FORMATS
from ingest.decode.formats.registry import REPLAY
from ingest.decode.replay import Origin, origin_of
from ingest.model.raw_rows import Headers
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer, no_date
from lake.errors import Reason, Rejected
from lake.settings import ChangeOrder, ChangeSettings, IngestSettings


class Step(Struct, frozen=True, gc=False):
    """What a change does to one key. `ordinal`: of its message in the buffer. `row`: what the key's row is
    afterwards; None: there is none. `change`: what it is a part of.

    `unavailable`: columns of the row that keep what the row of the key `values_of` has.
    """

    ordinal: int
    key: Cells
    row: Cells | None
    change: Change
    unavailable: frozenset[str] = frozenset()
    values_of: Cells | None = None
    place: int = 0  # among the steps of its part
    rests_on: int | None = None  # place of an earlier step that has to stay, since a row moved there


class OfMessage(NamedTuple):
    """A change, and the ordinal of its message in the buffer."""

    ordinal: int
    change: Change


@dataclass(slots=True)
class ReadChanges:
    """What the messages of a buffer say. `rejected`: ordinals and reasons. `passed_over`: messages that
    change no row, by what they are. `committed`: messages below the table's marks. `origins`: by ordinal,
    where messages were first read that were dead letters since."""

    changes: list[OfMessage] = field(default_factory=list)
    rejected: list[tuple[int, Rejected]] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    committed: int = 0
    origins: dict[int, Origin] = field(default_factory=dict)


LATE_TRUNCATE = Rejected(
    Reason.NOT_OF_SCHEMA,
    "a truncate that is replayed would remove what came since; empty the table at its source",
)
OpenMessage = Callable[[bytes], bytes | Rejected]
# Key, value and headers of a message to what it says.
ReadMessage = Callable[[bytes | None, bytes | None, Headers], Change | PassedOver | Rejected]


@dataclass(frozen=True, slots=True)
class ReadingTerms:
    """How messages are read. `open_message`: turns one in the wire format of a schema registry into JSON;
    None without a registry."""

    depth_max: int
    open_message: OpenMessage | None = None

    @classmethod
    def of(cls, settings: IngestSettings) -> "ReadingTerms":
        """As the settings say. Raises SettingsError where those of the registry cannot be used."""
        if not settings.registry.url:
            return cls(settings.limits.depth_max)
        # Its client takes a third of the time in which a worker starts, so only those import it who ask one.
        from ingest.schema_registry.schema_registry import SchemaRegistry

        return cls(settings.limits.depth_max, SchemaRegistry(settings.registry).read)


def read_changes(
    buffer: TableBuffer, sources: Sequence[Source], marks: Sequence[int], terms: ReadingTerms
) -> ReadChanges:
    """Reads all messages that the table does not have yet, in the order in which they were routed. Raises
    RegistryUnavailableError."""
    found, undated = ReadChanges(), buffer.undated
    # Replayed messages are read as their headers say.
    readers = {
        number: None if sources[number].form == REPLAY else reader_of(sources[number], terms)
        for number in buffer.first_offsets
    }
    messages = zip(buffer.sources, buffer.offsets, buffer.envelopes, buffer.values, strict=True)
    for ordinal, (source, offset, (key, headers), value) in enumerate(messages):
        if offset < marks[source]:
            found.committed += 1
            continue
        if ordinal in undated:
            found.rejected.append((ordinal, no_date(buffer.timestamps_ms[ordinal])))
            continue
        reader = readers[source]
        if reader is None:
            read = _read_replayed(buffer, ordinal, sources[source], terms, found.origins)
        else:
            read = reader(key, value, headers or ())
        if isinstance(read, Rejected):
            found.rejected.append((ordinal, read))
        elif isinstance(read, PassedOver):
            found.passed_over[read.notice.value] += 1
        else:
            found.changes.append(OfMessage(ordinal, read))
    return found


def _read_replayed(
    buffer: TableBuffer, ordinal: int, source: Source, terms: ReadingTerms, origins: dict[int, Origin]
) -> Change | PassedOver | Rejected:
    key, headers = buffer.envelopes[ordinal]
    headers = headers or ()
    replayed = origin_of(headers)
    if replayed is not None:
        origins[ordinal], headers = replayed
        source = source._replace(topic=replayed[0].topic, changes=replayed[0].changes)
    read = read_change(key, buffer.values[ordinal], headers, source, terms)
    is_truncate = isinstance(read, Change) and read.op is Op.TRUNCATE
    if replayed is not None and is_truncate and source.mode_for(buffer.table) != "history":
        return LATE_TRUNCATE
    return read


def read_change(
    key: bytes | None, value: bytes | None, headers: Headers, source: Source, terms: ReadingTerms
) -> Change | PassedOver | Rejected:
    """Reads one message as its source's settings say. Raises RegistryUnavailableError."""
    return reader_of(source, terms)(key, value, headers)


def reader_of(source: Source, terms: ReadingTerms) -> ReadMessage:
    """What reads the messages of a source as its settings say."""
    settings = source.changes
    if settings is None or settings.mode == "append":
        no_changes = Rejected(
            Reason.KEY_MISSING,
            f"the table has a key, and topic {source.topic} holds records, not changes; set `changes` of the "
            "topic, or let its rules name another stream",
        )
        return lambda _key, _value, _headers: no_changes
    read, options = CHANGE_FORMATS[settings.format], _options(settings, terms.depth_max)
    if terms.open_message is None and source.as_of is None:  # as good as always: a call less for each message
        return lambda key, value, headers: read(key, value, headers, options)

    def read_opened(
        key: bytes | None, value: bytes | None, headers: Headers
    ) -> Change | PassedOver | Rejected:
        opened_key, opened = _opened(key, terms), _opened(value, terms)
        if isinstance(opened_key, Rejected):
            return opened_key
        if isinstance(opened, Rejected):
            return opened
        change = read(opened_key, opened, headers, options)
        if source.as_of is not None and isinstance(change, Change):
            return replace(change, position=source.as_of.position, time_us=source.as_of.time_us)
        return change

    return read_opened


def _opened(part: bytes | None, terms: ReadingTerms) -> bytes | Rejected | None:
    """The key or the value of a message as JSON, of one that a schema registry's schema describes."""
    return part if terms.open_message is None or not part else terms.open_message(part)


@lru_cache(maxsize=1_024)
def _options(settings: ChangeSettings, depth_max: int) -> ReadOptions:
    return ReadOptions(settings.key, settings.placeholder, depth_max)


@dataclass(frozen=True, slots=True)
class PartedMoves:
    """Ordinals of messages of rows whose key changes, where the two messages of one are not in the same part:
    deletes whose insert comes with the next part, and inserts whose delete came with the one before."""

    left_to_the_next: frozenset[int] = frozenset()
    begun_before: frozenset[int] = frozenset()


NOTHING_PARTED = PartedMoves()


@dataclass(slots=True)
class Steps:
    """What changes do to keys, in order. `first`: of those that stand, because the table was emptied before
    it. `truncated_by`: ordinals of the messages that say so. `repeats`: how many only say again that a row is
    gone. `moving`: how many are left to the next message."""

    steps: list[Step] = field(default_factory=list)
    first: int = 0
    truncated_by: list[int] = field(default_factory=list)
    repeats: int = 0
    moving: int = 0


def steps_of(
    changes: Sequence[OfMessage], order_by: ChangeOrder, parted: PartedMoves = NOTHING_PARTED
) -> Steps:
    """Takes changes apart into steps of single keys."""
    found = Steps()
    for ordinal, change in changes:
        if ordinal in parted.left_to_the_next:
            found.moving += 1
            continue
        if ordinal in parted.begun_before and change.old_key is not None:
            found.steps.append(Step(ordinal, change.old_key, None, change))
        if change.op is Op.TRUNCATE:
            found.first = len(found.steps)
            found.truncated_by.append(ordinal)
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
    values_of = (change.old_key or change.key) if change.unavailable else None
    steps.append(Step(ordinal, change.key, change.row, change, change.unavailable, values_of))
