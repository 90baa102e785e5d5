"""Rows whose key changes, where the end of a part of a flush lies between the two messages that say so.

The insert may lack values that only the row of the old key has, so that row has to be there until the insert
comes. The delete, the last message of its part, is left to the insert, the first one of the next. Of a topic
with several partitions the two messages are in no order; there every delete is carried out as it comes.
"""

from collections.abc import Sequence

from ingest.changes.change import Change, Op
from ingest.convert.read_changes import OfMessage, PartedMoves
from ingest.decode.formats.registry import REPLAY
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer


def parted_moves(changes: Sequence[OfMessage], buffer: TableBuffer, sources: Sequence[Source]) -> PartedMoves:
    """Finds such messages at both ends of a part."""
    # What is replayed is single messages, whose other half is somewhere else.
    alone = {at for at in buffer.first_offsets if sources[at].is_alone and sources[at].form != REPLAY}
    if not alone:
        return PartedMoves()
    return PartedMoves(_last(changes, buffer, alone), _first(changes, buffer, alone))


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


def _moves_away(change: Change) -> bool:
    return change.op is Op.DELETE and change.new_key is not None
