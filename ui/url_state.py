"""What a page's address holds, so that a link re-opens the page as it was."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from urllib.parse import urlencode, urlsplit, urlunsplit

NAMES = {"from_": "from", "query": "q"}


@dataclass(frozen=True)
class SearchState:
    """A search as an address holds it; empty texts are left out of it."""

    tenant: str = ""
    stream: str = ""
    query: str = ""
    from_: str = "now-1h"
    to: str = "now"
    pin: str = ""
    row: str = ""
    columns: str = ""


def from_params(params: Mapping[str, str]) -> SearchState:
    """Reads the parameters of an address; what is missing gets its default, what is unknown is left alone."""
    return SearchState(
        **{
            f.name: params[NAMES.get(f.name, f.name)]
            for f in fields(SearchState)
            if NAMES.get(f.name, f.name) in params
        }
    )


def to_params(state: SearchState) -> dict[str, str]:
    """The parameters that give this state back."""
    return {NAMES.get(name, name): value for name, value in asdict(state).items() if value}


def link(page_url: str, state: SearchState) -> str:
    """The whole address."""
    parts = urlsplit(page_url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(to_params(state)), ""))


def row_key(coordinates: Mapping[str, object], timestamp: str) -> str:
    """A row in an address: its time and identity."""
    return "~".join(
        str(part)
        for part in (
            timestamp,
            coordinates["topic_id"],
            coordinates["partition"],
            coordinates["offset"],
            coordinates["index"],
        )
    )


def parse_row_key(text: str) -> dict[str, str] | None:
    """The parameters of GET /v1/row, None where the text is no row."""
    parts = text.split("~")
    names = ("timestamp", "topic_id", "partition", "offset", "index")
    return dict(zip(names, parts, strict=True)) if len(parts) == len(names) and all(parts) else None
