"""The tiles of a board are asked for side by side: how many at once, and what becomes of a refusal."""

import threading
from typing import Any

import pytest

from tests.ui.support.tile_server import TileServer, serving
from ui.api_client import ApiError
from ui.components import tiles_asked
from ui.components.tiles_asked import AT_ONCE, TRIES, Asked

RANGE = ("now-1h", "now")


def tiles(count: int) -> list[dict[str, Any]]:
    return [{"title": "t", "query": f"| limit {at}", "shown": "table"} for at in range(count)]


def asked_for(
    api: TileServer, wanted: list[dict[str, Any]], kept: dict[int, Asked] | None = None
) -> list[Any]:
    """What becomes of each: the query that was answered, or the error."""
    kept = {} if kept is None else kept
    tiles_asked.begin(kept, api.client, "acme", wanted, RANGE, lambda _: None)
    for _ in tiles_asked.as_they_come(kept, len(wanted)):
        pass
    answers = [kept[at].answer for at in range(len(wanted))]
    return [each.exception() or each.result()["query"] for each in answers]


@pytest.mark.long
def test_tiles_are_asked_side_by_side_and_not_too_many_at_once() -> None:
    """The API answers when as many are asked as may be at once."""
    with serving(TileServer(together=AT_ONCE)) as api:
        assert asked_for(api, tiles(2 * AT_ONCE)) == [f"| limit {at}" for at in range(2 * AT_ONCE)]
        assert api.most == AT_ONCE


@pytest.mark.long
def test_a_tile_that_fails_leaves_the_others_theirs() -> None:
    """It has the sentence of the API."""
    wanted = [*tiles(2), {"title": "t", "query": "| wrong", "shown": "table"}]
    with serving(TileServer()) as api:
        first, second, wrong = asked_for(api, wanted)
    assert (first, second) == ("| limit 0", "| limit 1")
    assert isinstance(wrong, ApiError)
    assert (wrong.status, wrong.message) == (400, "there is no such stage")


@pytest.mark.long
def test_where_a_tenant_may_ask_less_at_once_each_tile_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that says to ask again in a moment is no answer."""
    monkeypatch.setattr(tiles_asked, "TRIES", 10_000)
    with serving(TileServer(room=1)) as api:
        assert asked_for(api, tiles(AT_ONCE)) == [f"| limit {at}" for at in range(AT_ONCE)]
        assert api.most == 1


@pytest.mark.long
@pytest.mark.parametrize(("refusals", "times"), [([3_600], 1), ([1] * TRIES, TRIES)])
def test_a_limit_that_lasts_is_told(refusals: list[int], times: int) -> None:
    """That of the day at once, another one after a while."""
    with serving(TileServer()) as api:
        api.refusals = list(refusals)
        (error,) = asked_for(api, tiles(1))
        assert isinstance(error, ApiError)
        assert (error.status, error.message, api.asked) == (429, "too much runs already", times)


@pytest.mark.long
def test_what_is_asked_or_answered_already_is_not_asked_again() -> None:
    """Also while it is on its way; another question in its place is."""
    kept: dict[int, Asked] = {}
    with serving(TileServer(together=2)) as api:
        tiles_asked.begin(kept, api.client, "acme", tiles(1), RANGE)
        before = kept[0].answer
        assert asked_for(api, tiles(2), kept) == ["| limit 0", "| limit 1"]
        assert kept[0].answer is before
        api.together = threading.Barrier(1)
        assert asked_for(api, list(reversed(tiles(2))), kept) == ["| limit 1", "| limit 0"]
        assert api.asked == 4
