"""A pin: what a link carries so that it re-opens exactly the rows it was made of.

It holds the table's uuid and the offsets that the table has committed. A row belongs to it when its own is
one of these: true for the same rows after compaction, after expiry of the snapshot, and however much is
written since. What retention removed is missing, which the count shows.

Rows of a keyed table are replaced, so that offsets would not find them again: there it names a snapshot,
which the table keeps for a while only.
"""

import base64
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from lake.backfill_mark import CommittedRanges
from lake.marks import Range, TopicPartition, by_topic
from query.model.problem import BadRequestError, refuse

_BYTES_MAX = 200_000
# Each is a comparison for every row. A table has one per partition of its topics, and some more after a
# backfill.
RANGES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class PointInTime:
    """`rows`: how many rows matched when it was made; None where nobody counted. `asked`: the search that was
    counted (see `fingerprint`). `snapshot_id`: of a keyed table, in place of `committed`."""

    table_uuid: str
    committed: CommittedRanges
    rows: int | None = None
    asked: str = ""
    snapshot_id: int | None = None

    def is_all_of(self, table_uuid: str, committed: CommittedRanges) -> bool:
        """Whether these are all rows of a table that has committed this: nothing came since."""
        return table_uuid == self.table_uuid and _filled(committed) == _filled(self.committed)

    def to_text(self) -> str:
        """URL-safe text."""
        whole = {
            topic_partition: ranges[0].end
            for topic_partition, ranges in self.committed.items()
            if len(ranges) == 1 and ranges[0].start == 0
        }
        others = {
            topic_partition: ranges
            for topic_partition, ranges in self.committed.items()
            if ranges and topic_partition not in whole
        }
        parts = (
            {
                "r": [
                    [*topic_partition, *map(list, ranges)]
                    for topic_partition, ranges in sorted(others.items())
                ]
            }
            if others
            else {}
        )
        counted = {} if self.rows is None else {"n": self.rows, "q": self.asked}
        snapshot = {} if self.snapshot_id is None else {"s": self.snapshot_id}
        raw = orjson.dumps({"u": self.table_uuid, "m": by_topic(whole), **parts, **counted, **snapshot})
        return base64.urlsafe_b64encode(zlib.compress(raw, 9)).decode().rstrip("=")


def _filled(committed: CommittedRanges) -> dict[TopicPartition, tuple[Range, ...]]:
    return {partition: tuple(ranges) for partition, ranges in committed.items() if ranges}


def fingerprint(query: str, start: datetime, end: datetime) -> str:
    """A few characters that tell a search from others, so that the rows of one are not compared with those of
    another."""
    return hashlib.sha256(f"{query}\0{start.isoformat()}\0{end.isoformat()}".encode()).hexdigest()[:12]


def parse_point_in_time(text: str) -> PointInTime:
    """Reads a pin. Raises BadRequestError: it comes from a link, which may be cut off."""
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        reader = zlib.decompressobj()
        raw = reader.decompress(packed, _BYTES_MAX)
        document = orjson.loads(raw)
        _check_count(document)
        committed: dict[TopicPartition, Sequence[Range]] = {}
        for topic, partitions in document["m"].items():
            committed |= {
                TopicPartition(str(topic), int(p)): (Range(0, int(end)),) for p, end in partitions.items()
            }
        for topic, p, *ranges in document.get("r", ()):
            committed[TopicPartition(str(topic), int(p))] = tuple(
                Range(int(start), int(end)) for start, end in ranges
            )
        rows, snapshot_id = document.get("n"), document.get("s")
        pin = PointInTime(
            str(document["u"]),
            committed,
            None if rows is None else int(rows),
            str(document.get("q", "")),
            None if snapshot_id is None else int(snapshot_id),
        )
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise _damaged() from error
    if any(
        not 0 <= p.partition < 2**31 or not all(0 <= start <= end < 2**63 for start, end in ranges)
        for p, ranges in committed.items()
    ):
        raise _damaged()
    return pin


def _check_count(document: Any) -> None:
    """Before anything is made of them. Raises BadRequestError."""
    count = sum(map(len, document["m"].values())) + sum(len(ranges) - 2 for ranges in document.get("r", ()))
    if count > RANGES_MAX:
        raise refuse(
            f"pin: it names {count:,} ranges of offsets, at most {RANGES_MAX:,} are allowed; remove `pin` to "
            "search all rows there are now",
            suggestion="a shorter time range finds the same rows",
        )


def _damaged() -> BadRequestError:
    return refuse(
        "pin: the link is damaged, perhaps cut off; copy it again, or remove `pin` to search all rows there "
        "are now"
    )
