"""A pin: what a link carries so that it re-opens exactly the rows it was made of.

It holds the table's uuid and marks. A row belongs to it when its offset lies below the mark of its partition: true for the same rows after
compaction, after expiry of the snapshot, and however much is written since. What retention removed is missing, which the count shows.
"""

import base64
import hashlib
import zlib
from dataclasses import dataclass
from datetime import datetime

import orjson

from lake.marks import Marks, TopicPartition
from query.problem import BadQuestionError, refuse

_BYTES_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Pin:
    """`rows`: how many rows matched when it was made; None where nobody counted. `asked`: the search that was counted (see `fingerprint`)."""

    table_uuid: str
    marks: Marks
    rows: int | None = None
    asked: str = ""

    def to_text(self) -> str:
        """URL-safe text."""
        topics: dict[str, dict[str, int]] = {}
        for (topic_id, partition), offset in sorted(self.marks.offsets.items()):
            topics.setdefault(topic_id, {})[str(partition)] = offset
        raw = orjson.dumps({"u": self.table_uuid, "m": topics} | ({} if self.rows is None else {"n": self.rows, "q": self.asked}))
        return base64.urlsafe_b64encode(zlib.compress(raw, 9)).decode().rstrip("=")


def fingerprint(query: str, start: datetime, end: datetime) -> str:
    """A few characters that tell a search from others, so that the rows of one are not compared with those of another."""
    return hashlib.sha256(f"{query}\0{start.isoformat()}\0{end.isoformat()}".encode()).hexdigest()[:12]


def parse_pin(text: str) -> Pin:
    """Reads a pin. Raises BadQuestionError: it comes from a link, which may be cut off."""
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        reader = zlib.decompressobj()
        raw = reader.decompress(packed, _BYTES_MAX)
        document = orjson.loads(raw)
        offsets = {TopicPartition(str(topic), int(p)): int(offset) for topic, ps in document["m"].items() for p, offset in ps.items()}
        rows = document.get("n")
        pin = Pin(str(document["u"]), Marks(offsets), None if rows is None else int(rows), str(document.get("q", "")))
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise _damaged() from error
    if any(not 0 <= p.partition < 2**31 or not 0 <= offset < 2**63 for p, offset in offsets.items()):
        raise _damaged()
    return pin


def _damaged() -> BadQuestionError:
    return refuse("pin: the link is damaged, perhaps cut off; copy it again, or remove `pin` to search all rows there are now")
