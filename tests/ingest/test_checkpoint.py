"""The newest commit a node knows of."""

from dataclasses import replace

import pytest

from ingest.commit.checkpoint import CommitCheckpoint, Newest, parse_checkpoint
from lake.catalog_client import TableName
from lake.commit import TableState, new_table_state

FOUND = CommitCheckpoint(TableName("acme", "logs"), "u", 7, 3, 2_000)


def _state(head: int, made_ms: int) -> TableState:
    state = new_table_state(TableName("other", "logs"), "other", "logs", "file:///warehouse")
    return replace(state, exists=True, head=head, head_ms=made_ms, sequence_number=1)


def test_what_stands_beside_an_offset_comes_back() -> None:
    """As text and back; anything else is no checkpoint."""
    assert parse_checkpoint(FOUND.to_text()) == FOUND


@pytest.mark.parametrize("text", ["", "acme.logs:u:7:3", "acme.logs:u:7:x:2000", "logs:u:7:3:2000"])
def test_other_text_is_no_checkpoint(text: str) -> None:
    """It comes from somebody else, and says nothing."""
    assert parse_checkpoint(text) is None


def test_what_is_met_counts_only_where_it_is_newer() -> None:
    """A node goes on from the newest checkpoint beside the offsets it begins with: a table that it loads may
    have had no commit for weeks."""
    newest = Newest()
    newest.found([FOUND._replace(known_ms=1_000, snapshot_id=6), FOUND])
    newest.met(_state(1, 1_999))
    assert newest.checkpoint == FOUND
    newest.met(_state(2, 2_000))
    assert (newest.checkpoint.snapshot_id, newest.checkpoint.known_ms) == (2, 2_000)


def test_own_commit_is_newer_whatever_other_clocks_said() -> None:
    """This node's clock may be behind that of the one that stored the offsets."""
    newest = Newest()
    newest.found([FOUND])
    newest.made(_state(3, 900), 1_000)
    assert newest.text == f"other.logs:{newest.checkpoint and newest.checkpoint.uuid}:3:1:2000"


def test_node_that_finds_none_begins_with_what_it_meets() -> None:
    """A table that does not exist, or has no snapshot, is no commit."""
    newest = Newest()
    newest.found([])
    assert newest.text == ""
    newest.met(replace(_state(1, 5), exists=False))
    newest.met(replace(_state(1, 5), head=None))
    assert newest.text == ""
    newest.met(_state(1, 5))
    assert newest.text.endswith(":1:1:5")
