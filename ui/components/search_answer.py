"""What a search has answered so far: pages, histogram, and what both rest on."""

from collections.abc import Sequence
from typing import Any

from ui.api_client import ApiError
from ui.components import auto_refresh
from ui.components.running_search import RunningSearch
from ui.components.several_streams import Together

PAGE_ROWS = 100
Answer = dict[str, Any]


def begun(key: object, body: dict[str, Any], streams: Sequence[str]) -> Answer:
    """An answer of which nothing is there yet. `found`: rows of a page that was cancelled, `far`: how far it
    was; `uncounted`: why there is no histogram; `together`: where several streams are searched."""
    return {
        "key": key,
        "body": body,
        "together": Together(streams) if len(streams) > 1 else None,
        "pages": [],
        "found": [],
        "cancelled": False,
        "counts": None,
        "uncounted": None,
        "far": {},
    }


def fetch(kept: Answer, running: RunningSearch, wanted: int) -> None:
    """What is missing: the first page, the histogram, further pages up to so many. They all see the range and
    the rows that the first page saw, whatever is written meanwhile. Raises ApiError."""
    pages, found, several = kept["pages"], kept["found"], kept["together"]

    def ask(body: dict[str, Any]) -> dict[str, Any]:
        return running.ask("/search", body, shown=rows_of(pages), found=found)

    def count(body: dict[str, Any]) -> dict[str, Any]:
        return running.ask("/histogram", body, shown=rows_of(pages))

    def next_page(**more: Any) -> None:
        body = {**kept["body"], "limit": PAGE_ROWS}
        pages.append(ask({**body, **more}) if several is None else several.page(body, ask))
        found.clear()

    if not pages:
        next_page()
        kept["body"] |= {name: pages[0][name] for name in ("from", "to", "pin")}
    if kept["counts"] is None and kept["uncounted"] is None:
        body = {**kept["body"], "by": "level"}
        try:
            kept["counts"] = count(body) if several is None else several.counts(body, count)
        except ApiError as error:  # the rows are there all the same
            kept["uncounted"] = error
        auto_refresh.begin_anew()
    while len(pages) < wanted and pages[-1]["next"]:
        next_page(cursor=pages[-1]["next"])


def rows_of(pages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of all pages."""
    return [row for page in pages for row in page["rows"]]


def basis_of(found: Answer) -> dict[str, Any] | None:
    """What page and histogram rest on together; None where not even a page is whole."""
    if not found["pages"]:
        return None
    first, counts = found["pages"][0], found["counts"]
    if counts is None:
        return dict(first)
    return {
        **counts,
        **{name: first[name] for name in ("pinned", "notes", "freshness", "pin", "pin_expires")},
        "complete": first["complete"] and counts["complete"],
        "as_usual": first["as_usual"] and counts["as_usual"],
        "reasons": list(dict.fromkeys([*first["reasons"], *counts["reasons"]])),
        "took_ms": first["took_ms"] + counts["took_ms"],
    }
