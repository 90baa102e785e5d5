"""How far a table has committed a file of an archive: the property `firn.backfill.<source>`, set in the
commit of the rows.

A source is a file by its URI. Its id is also the `_topic_id` of its rows; their `_topic` is the URI,
`_topic_partition` 0, `_offset` the number of the record in the file. So a file is to its rows what a topic
with one partition is, and its mark what `firn.offsets` is for topics.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from lake.errors import ProtocolError
from lake.marks import MARKS_PROPERTY, Range, TopicPartition, parse_marks
from lake.storage import canonical
from lake.topic_fill import FILL_PREFIX, all_fills, join

BACKFILL_PREFIX = "firn.backfill."
CommittedRanges = Mapping[
    TopicPartition, Sequence[Range]
]  # stretches of offsets, ascending, that neither overlap nor touch
_ID_CHARACTERS = 20


@dataclass(frozen=True, slots=True)
class BackfillMark:
    """`next`: number of the first record that the table has not committed. `complete`: the file has no
    further ones.

    `size` and `etag` are those of the file that was read: records are numbered in exactly that one.
    """

    path: str
    size: int
    etag: str
    next: int
    complete: bool = False

    def is_of(self, size: int, etag: str) -> bool:
        """Whether a file of this size and etag is the one that was read."""
        return (self.size, self.etag) == (size, etag)

    def to_property(self) -> str:
        """The value of the table property, one JSON object."""
        mark = {"v": 1, "path": self.path, "size": self.size, "etag": self.etag, "next": self.next}
        return orjson.dumps(mark | ({"complete": True} if self.complete else {})).decode()


def source_id(uri: str) -> str:
    """The id of a file, the same for every spelling of its URI."""
    return hashlib.sha256(canonical(uri).encode("utf-8", "surrogateescape")).hexdigest()[:_ID_CHARACTERS]


def backfill_property(source: str) -> str:
    """The property that holds the mark of a source."""
    return BACKFILL_PREFIX + source


def parse_backfill_mark(properties: Mapping[str, str], source: str) -> BackfillMark | None:
    """The mark of a source among a table's properties, None where there is none. Raises ProtocolError."""
    value = properties.get(backfill_property(source))
    if value is None:
        return None
    try:
        document = orjson.loads(value)
        return BackfillMark(
            str(document["path"]),
            int(document["size"]),
            str(document["etag"]),
            int(document["next"]),
            bool(document.get("complete", False)),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"{backfill_property(source)} cannot be read ({value[:200]!r}); set it as it was, or its file "
            "would be read into the table again"
        ) from error


def committed_ranges(properties: Mapping[str, str]) -> CommittedRanges:
    """The offsets that a table has committed, of topics, of files, and of topics' pasts that a backfill
    brought in: every row is of one of these.

    Raises ProtocolError.
    """
    live, found = parse_marks(properties.get(MARKS_PROPERTY)), all_fills(properties)
    for topic_partition in live.offsets:
        covered = live.covered(topic_partition)
        found[topic_partition] = join(
            [*found.get(topic_partition, ()), *([] if covered is None else [covered])]
        )
    sources = [
        name.removeprefix(BACKFILL_PREFIX)
        for name in properties
        if name.startswith(BACKFILL_PREFIX) and not name.startswith(FILL_PREFIX)
    ]
    for source in sources:
        if (mark := parse_backfill_mark(properties, source)) is not None:
            found[TopicPartition(source, 0)] = (Range(0, mark.next),)
    return found
