"""Tables that another node commits to as well are loaded before the next commits, for a while."""

from ingest.commit.contested_tables import COMMITS, ContestedTables
from lake.tenant import TableId, TenantId

TABLE = TableId(TenantId("t"), "logs")


def test_after_a_conflict_so_many_commits_are_made_on_what_was_loaded_anew() -> None:
    contested = ContestedTables(is_shared=True)
    assert not contested.is_to_be_loaded(TABLE)
    contested.lost(TABLE)
    assert [contested.is_to_be_loaded(TABLE) for _ in range(COMMITS + 2)] == [True] * COMMITS + [False] * 2


def test_where_no_other_node_is_at_work_a_conflict_changes_nothing() -> None:
    contested = ContestedTables()
    contested.lost(TABLE)
    assert not contested.is_to_be_loaded(TABLE)


def test_a_table_that_is_gone_is_forgotten() -> None:
    contested = ContestedTables(is_shared=True)
    contested.lost(TABLE)
    contested.forget(TABLE)
    assert not contested.is_to_be_loaded(TABLE)
