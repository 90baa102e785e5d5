"""Rows whose key changes, where the end of a part of a flush lies between the two messages that say so.

The insert may lack values that only the row of the old key has, so that row has to be there until the insert
comes. The delete, the last message of its part, is left to the insert, the first one of the next. So it is
where the connector ended between the two, and goes on with what was before: it sends both again. Of a topic
with several partitions the two messages are in no order; there every delete is carried out as it comes.
"""

from collections.abc import Sequence

from ingest.changes.change import Change, Op
from ingest.convert.read_changes import OfMessage, PartedMoves
from ingest.decode.formats.registry import REPLAY
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from lake.settings import ChangeOrder


def parted_moves(
    changes: Sequence[OfMessage], buffer: TableBuffer, sources: Sequence[Source], order_by: ChangeOrder
) -> PartedMoves:
    """Finds such messages: at both ends of a part, and where changes are sent again within it."""
    # What is replayed is single messages, whose other half is somewhere else.
    alone = {at for at in buffer.first_offsets if sources[at].is_alone and sources[at].form != REPLAY}
    if not alone:
        return PartedMoves()
    left = _last(changes, buffer, alone) | _broken_off(changes, buffer, alone, order_by)
    return PartedMoves(left, _first(changes, buffer, alone))


def _last(changes: Sequence[OfMessage], buffer: TableBuffer, alone: set[int]) -> frozenset[int]:
    """Deletes behind which their source has no other message."""
    by_ordinal: dict[int, Change] = dict(changes)
    found, open_ends = set[int](), set(alone)
    for ordinal in reversed(range(len(buffer))):
        source, change = buffer.sources[ordinal], by_ordinal.get(ordinal)
        if source in open_ends:
            if change is not None and _moves_away(change):
                found.add(ordinal)
            else:
                open_ends.remove(source)
        if not open_ends:
            break
    return frozenset(found)


def _first(changes: Sequence[OfMessage], buffer: TableBuffer, alone: set[int]) -> frozenset[int]:
    """Inserts before which their source has no other change than what repeats the delete."""
    found, open_ends = set[int](), set(alone)
    for ordinal, change in changes:
        source = buffer.sources[ordinal]
        if source in open_ends and not (change.is_tombstone and _moves_away(change)):
            open_ends.remove(source)
            if change.op is Op.INSERT and change.old_key is not None:
                found.add(ordinal)
        if not open_ends:
            break
    return frozenset(found)


def _broken_off(
    changes: Sequence[OfMessage], buffer: TableBuffer, alone: set[int], order_by: ChangeOrder
) -> frozenset[int]:
    """Deletes behind which their source goes on with what was before them, or with themselves."""
    found, behind = set[int](), dict[int, Change]()
    for ordinal, change in reversed(changes):
        source = buffer.sources[ordinal]
        if source not in alone or (change.is_tombstone and _moves_away(change)):
            continue
        if _moves_away(change) and source in behind and _is_sent_again(behind[source], change, order_by):
            found.add(ordinal)
        behind[source] = change
    return frozenset(found)


def _is_sent_again(behind: Change, change: Change, order_by: ChangeOrder) -> bool:
    """Whether what comes behind a change was made before it, or is the same."""
    before, after = _turn(change, order_by), _turn(behind, order_by)
    if before is None or after is None:
        return False
    return after < before or (after == before and behind.op is Op.DELETE)


def _turn(change: Change, order_by: ChangeOrder) -> tuple[int, ...] | None:
    if order_by == "position":
        return change.position
    return (change.time_us,) if order_by == "time" and change.time_us is not None else None


def _moves_away(change: Change) -> bool:
    return change.op is Op.DELETE and change.new_key is not None
