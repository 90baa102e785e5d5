"""What gives tenant `b` away: its rows, the identity of its table, where its files lie and what they are
called, its key, its name, and what else it alone has."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from lake.commit import load_state
from tests.query.support.guarded import SECRET
from tests.query.support.log_table import LogTable

LONG = 6


@dataclass(frozen=True)
class Markers:
    """`texts` give `b` away wherever they stand; `names` where the caller has not named it first: those of
    `LONG` characters in any place, shorter ones where one is a whole value."""

    texts: frozenset[str]
    names: frozenset[str]

    @classmethod
    def of(cls, table: LogTable, key_id: str, *more: str) -> "Markers":
        """The markers of a table and of the key that writes it, and more texts."""
        state = load_state(table.catalog, table.storage, table.name)
        assert state is not None
        files = {path.name for path in Path(urlsplit(state.location).path).rglob("*") if path.is_file()}
        assert files
        return cls(
            frozenset({SECRET, state.uuid, state.location, key_id, *files, *more}),
            frozenset({table.tenant, table.name.namespace, f"{table.tenant}.{table.stream}"}),
        )

    def found_in(self, answer: httpx.Response, *, named: bool = False) -> list[str]:
        """Those that an answer holds. `named`: the request named the tenant, so that its name alone tells
        nothing."""
        text = "\n".join((answer.text, *answer.headers.values()))
        found = [marker for marker in sorted(self.texts) if marker in text]
        if named:
            return found
        inside = {name for name in self.names if len(name) >= LONG and name in text}
        return found + sorted(inside | (self.names & set(_values(answer))))


def _values(answer: httpx.Response) -> Iterator[str]:
    """Every text in the JSON of an answer, or of each of its lines; names of fields too."""
    for line in (answer.content, *answer.content.splitlines()):
        try:
            yield from _texts(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        yield from value
        for each in value.values():
            yield from _texts(each)
