"""What a page's address holds, so that a link re-opens the page as it was."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

NAMES = {"from_": "from", "query": "q"}
FIRST_PAGE = "/"
ADDRESS_CHARACTERS_MAX = 8_000
PARAMETERS_MAX = 100
# One level, so that nothing of it can be taken for a host.
_PAGE = re.compile("/[a-z-]{0,40}")


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
    zone: str = ""
    also: str = ""


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


def address_of(page: str, params: Iterable[tuple[str, str]]) -> str:
    """Path and query of a page. `page`: its path below the first one."""
    query = urlencode(list(params))
    return f"{FIRST_PAGE}{page}{'?' if query else ''}{query}"


def page_address(asked: str) -> str:
    """The address of a page of these that somebody wants to come back to, as path and query, written anew;
    the first page's for whatever is none. It never leads elsewhere."""
    path, _, query = asked.partition("?")
    if not _PAGE.fullmatch(path):
        return FIRST_PAGE
    if len(asked) > ADDRESS_CHARACTERS_MAX:
        return path
    try:
        params = parse_qsl(query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
    except ValueError:
        return path
    return address_of(path[1:], params)


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
