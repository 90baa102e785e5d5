"""Marks of files: what a table's properties say of an archive that was read into it."""

import pytest

from lake.backfill_mark import (
    BackfillMark,
    backfill_property,
    committed_ranges,
    parse_backfill_mark,
    source_id,
)
from lake.errors import ProtocolError
from lake.marks import MARKS_PROPERTY, Marks, Range, TopicPartition
from lake.topic_fill import TopicFill, fill_property

MARK = BackfillMark('file:///archive/ü "x".gz', 10, "etag", 7, complete=True)


@pytest.mark.parametrize("complete", [True, False])
def test_mark_comes_back(complete: bool) -> None:
    """What is written is read, and a table without it has none."""
    mark = BackfillMark(MARK.path, MARK.size, MARK.etag, MARK.next, complete)
    properties = {backfill_property("s"): mark.to_property(), "other": "x"}
    assert parse_backfill_mark(properties, "s") == mark
    assert parse_backfill_mark(properties, "t") is None
    assert mark.is_of(10, "etag")
    assert not mark.is_of(11, "etag")
    assert not mark.is_of(10, "other")


@pytest.mark.parametrize("value", ["", "7", "[]", "{}", '{"v":1,"path":"x","size":1,"etag":"e","next":"x"}'])
def test_unreadable_mark_is_an_error(value: str) -> None:
    """A mark that nobody can read is not taken for none: the file would be read again."""
    with pytest.raises(ProtocolError, match="cannot be read"):
        parse_backfill_mark({backfill_property("s"): value}, "s")


def test_source_is_the_same_for_every_spelling() -> None:
    """One file has one id, and other files have others."""
    assert source_id("/a/b") == source_id("file:/a/b") == source_id("file:///a/b")
    assert source_id("s3a://x/y") == source_id("s3://x/y")
    assert len({source_id(uri) for uri in ("/a/b", "/a/c", "s3://a/b")}) == 3


def test_committed_are_offsets_of_topics_of_their_pasts_and_of_files() -> None:
    """A pin made of them holds the rows of all three, and none that a backfill may still bring between
    them."""
    topic_partition, legacy = TopicPartition("id", 3), TopicPartition("old", 0)
    live = Marks({topic_partition: 50, legacy: 9}, {topic_partition: 40})
    fill = TopicFill("t", {3: (Range(5, 8), Range(30, 40)), 4: (Range(0, 2),)})
    properties = {
        MARKS_PROPERTY: live.to_property(),
        backfill_property("s"): MARK.to_property(),
        fill_property("id"): fill.to_property(),
        "firn.other": "x",
    }
    assert committed_ranges({}) == {}
    assert committed_ranges(properties) == {
        topic_partition: (Range(5, 8), Range(30, 50)),
        TopicPartition("id", 4): (Range(0, 2),),
        legacy: (Range(0, 9),),
        TopicPartition("s", 0): (Range(0, 7),),
    }
