"""Which snapshots expire."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lake.expiry import expirable

DAY_MS = 86_400_000


def metadata(count: int, refs: dict[str, int] | None = None, *, step_ms: int = 1_000) -> dict[str, Any]:
    snapshots = [
        {"snapshot-id": at, "sequence-number": at, "timestamp-ms": at * step_ms, "manifest-list": f"{at}"}
        for at in range(1, count + 1)
    ]
    named = {"main": {"snapshot-id": count, "type": "branch"}} | {
        name: {"snapshot-id": at, "type": "tag"} for name, at in (refs or {}).items()
    }
    return {"snapshots": snapshots, "current-snapshot-id": count, "refs": named}


def test_ten_newest_snapshots_stay() -> None:
    """Of 25 snapshots the 15 oldest go, the oldest first."""
    assert expirable(metadata(25), keep=10, age_max_ms=DAY_MS, now_ms=30_000) == tuple(range(1, 16))


def test_commit_that_adds_a_snapshot_leaves_room_for_it() -> None:
    """With the one that the same commit adds there are ten."""
    assert expirable(metadata(10), keep=10, age_max_ms=DAY_MS, now_ms=30_000, adding=1) == (1,)
    assert expirable(metadata(10), keep=10, age_max_ms=DAY_MS, now_ms=30_000) == ()


def test_tagged_snapshots_stay_however_old() -> None:
    """A tag holds its snapshot, and takes one of the ten places."""
    gone = expirable(metadata(25, {"audit": 3}), keep=10, age_max_ms=DAY_MS, now_ms=30_000)
    assert 3 not in gone
    assert len(gone) == 15
    assert expirable(metadata(25, {"audit": 3}), keep=1, age_max_ms=DAY_MS, now_ms=30_000) == (
        1,
        2,
        *range(4, 25),
    )


def test_old_snapshots_expire_but_the_head_stays() -> None:
    """Beyond the age limit only what refs name stays, also when it is few."""
    assert expirable(metadata(4), keep=10, age_max_ms=DAY_MS, now_ms=10 * DAY_MS) == (1, 2, 3)


@given(
    st.integers(1, 40),
    st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 40), max_size=6),
    st.integers(1, 12),
    st.integers(0, 1),
)
def test_what_refs_name_stays_and_the_rest_is_bounded(
    count: int, refs: dict[str, int], keep: int, adding: int
) -> None:
    """Whatever branches and tags there are: none of their snapshots goes, and others stay only within the
    limit, the newest of them."""
    refs = {name: at for name, at in refs.items() if at <= count and name != "main"}
    gone = expirable(metadata(count, refs), keep=keep, age_max_ms=DAY_MS, now_ms=50_000, adding=adding)
    named = {*refs.values(), count}
    assert not named & set(gone)
    stay = set(range(1, count + 1)) - set(gone)
    assert len(stay) + adding <= max(keep, len(named) + adding)
    free = sorted(stay - named)
    assert not free or not [at for at in gone if at > free[0]]


def test_the_nearest_ancestor_with_marks_stays() -> None:
    """Whoever made the newest snapshots did not repeat the marks: the one that does shows whether the table
    was moved back."""
    table = metadata(25)
    for snapshot in table["snapshots"]:
        snapshot["parent-snapshot-id"] = snapshot["snapshot-id"] - 1
        snapshot["summary"] = {"firn.offsets": "{}"} if snapshot["snapshot-id"] <= 20 else {}
    gone = expirable(table, keep=3, age_max_ms=None, now_ms=0)
    assert gone == tuple(range(1, 20))
    table["snapshots"][-1]["summary"] = {"firn.offsets": "{}"}
    assert expirable(table, keep=3, age_max_ms=None, now_ms=0) == tuple(range(1, 23))
