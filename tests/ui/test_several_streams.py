"""A search of several streams is the search of one that has all their rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.components.several_streams import STREAMS_MAX, Together, chosen_of

LIMIT = 3


def answer(**more: Any) -> dict[str, Any]:
    """What the API says of a page or a histogram."""
    return {
        "from": "2026-01-01T00:00:00Z",
        "to": "2026-01-02T00:00:00Z",
        "pin": "pin",
        "pin_expires": False,
        "pinned": False,
        "complete": True,
        "as_usual": True,
        "reasons": [],
        "warnings": [],
        "notes": [],
        "engine": "duckdb",
        "took_ms": 5,
        "scanned": {"files": 1, "rows": 10, "bytes": 100},
        "planned": {"files": 2, "rows": 20, "bytes": 200},
        "freshness": {"newest_row": "2026-01-01T10:00:00Z", "complete_until": "2026-01-01T11:00:00Z"},
        **more,
    }


class Api:
    """Streams with times, each answered by pages, the newest first; it keeps what it was asked."""

    def __init__(self, streams: Mapping[str, Sequence[str]]) -> None:
        self.streams = {
            name: sorted(times, key=lambda time: time.removesuffix("Z"), reverse=True)
            for name, times in streams.items()
        }
        self.asked: list[dict[str, Any]] = []

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        times, first = self.streams[body["stream"]], int(body.get("cursor", 0))
        end = first + body["limit"]
        rows = [{"timestamp": each} for each in times[first:end]]
        return answer(rows=rows, next=str(end) if end < len(times) else None, pin=f"pin of {body['stream']}")


def listed(api: Api) -> list[tuple[str, str]]:
    """Time and stream of all rows, page by page."""
    several, rows = Together([*api.streams]), list[tuple[str, str]]()
    while True:
        page = several.page({"limit": LIMIT, "from": "now-1h", "to": "now"}, api)
        rows += [(row["timestamp"], row["stream"]) for row in page["rows"]]
        if page["next"] is None:
            return rows
        assert len(page["rows"]) == LIMIT


times = st.lists(
    st.builds(
        "2026-01-01T10:{:02}:00{}".format, st.integers(0, 59), st.sampled_from(["Z", ".5Z", ".000001Z"])
    ),
    max_size=12,
)


@given(st.dictionaries(st.sampled_from("abcd"), times, min_size=1))
def test_each_row_comes_once_the_newest_of_all_first(streams: dict[str, list[str]]) -> None:
    """However they lie in the streams, and whatever pages cut."""
    rows = listed(Api(streams))
    assert sorted(rows) == sorted((time, name) for name, found in streams.items() for time in found)
    order = [time.removesuffix("Z") for time, _ in rows]
    assert order == sorted(order, reverse=True)


def test_all_streams_are_asked_for_the_same_time_and_the_rows_that_were_there() -> None:
    """What `now` is, the first one tells; later pages ask by the pin, and none that has rows at hand."""
    api = Api({"old": ["2025-01-01T00:00:00Z"] * 9, "new": ["2026-01-01T00:00:00Z"] * 6})
    several = Together(["old", "new"])
    body = {"limit": LIMIT, "from": "now-1h", "to": "now"}
    several.page(body, api)
    several.page(body, api)
    assert [(each["stream"], each["from"], each["pin"]) for each in api.asked] == [
        ("old", "now-1h", ""),
        ("new", "2026-01-01T00:00:00Z", ""),
        ("new", "now-1h", "pin of new"),
    ]


def test_counts_are_added_by_bucket_and_level() -> None:
    """A bucket that one of the streams lacks is there as well."""
    found = iter(
        [
            answer(
                rows=3, buckets=[{"start": "1", "rows": 3, "levels": {"info": 2, "error": 1}}], width_s=60
            ),
            answer(
                rows=5,
                buckets=[
                    {"start": "0", "rows": 1, "levels": {}},
                    {"start": "1", "rows": 4, "levels": {"info": 4}},
                ],
                width_s=60,
            ),
        ]
    )
    counts = Together(["a", "b"]).counts({}, lambda _: next(found))
    assert counts["rows"] == 8
    assert counts["buckets"] == [
        {"start": "0", "rows": 1, "levels": {"other": 1}},
        {"start": "1", "rows": 7, "levels": {"info": 6, "error": 1}},
    ]


def test_the_answer_is_as_good_as_the_worst_of_its_parts() -> None:
    """Complete only where all are; a warning that one stream alone gives is none."""
    known, unknown = {"message": "no field x"}, {"message": "no field y"}
    parts = iter(
        [
            answer(rows=[], next=None, warnings=[known]),
            answer(
                rows=[],
                next=None,
                complete=False,
                reasons=["parked"],
                warnings=[known, unknown],
                freshness={"newest_row": None, "complete_until": "2026-01-01T09:00:00Z"},
            ),
        ]
    )
    page = Together(["a", "b"]).page({"limit": LIMIT}, lambda _: next(parts))
    assert (page["complete"], page["reasons"], page["warnings"]) == (False, ["parked"], [known])
    assert page["scanned"] == {"files": 2, "rows": 20, "bytes": 200}
    assert page["freshness"] == {
        "newest_row": "2026-01-01T10:00:00Z",
        "complete_until": "2026-01-01T09:00:00Z",
    }


@pytest.mark.parametrize(
    ("also", "chosen"),
    [("", []), ("b", ["b"]), ("b,c,b", ["b", "c"]), ("nowhere,c", ["c"]), (",,", [])],
)
def test_an_address_may_name_any_streams(also: str, chosen: list[str]) -> None:
    """Those that the tenant has are searched, each once."""
    assert chosen_of(also, ["b", "c"]) == chosen


def test_no_more_streams_are_searched_at_once_than_so_many() -> None:
    """Each costs a search."""
    names = [f"s{number}" for number in range(30)]
    assert len(chosen_of(",".join(names), names)) == STREAMS_MAX - 1
