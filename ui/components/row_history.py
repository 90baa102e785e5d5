"""From a row to all changes of its key, where a history has them: the row's own stream, or the one beside
it."""

from collections.abc import Mapping
from typing import Any

import orjson

from ui.components.field_list import filter_text
from ui.url_state import SearchState

SUFFIX = "_history"
EVER = "1970-01-01"


def history_of(
    tenant: str, stream: str, row: Mapping[str, Any], streams: Mapping[str, Mapping[str, Any]]
) -> SearchState | None:
    """The search for the changes of a row's key; None where no stream has them."""
    own, beside = streams.get(stream, {}), streams.get(stream + SUFFIX, {})
    if own.get("mode") == "history":
        return _search(tenant, stream, row["fields"].get("_key"))
    if beside.get("mode") == "history" and own.get("key"):
        return _search(tenant, stream + SUFFIX, _key_text(own["key"], row["fields"]))
    return None


def _key_text(columns: list[str], fields: Mapping[str, Any]) -> str | None:
    """A row's key as histories spell it."""
    if any(column not in fields for column in columns):
        return None
    return orjson.dumps({column: fields[column] for column in columns}).decode()


def _search(tenant: str, stream: str, key: str | None) -> SearchState | None:
    if key is None:
        return None
    return SearchState(tenant=tenant, stream=stream, query=filter_text("_key", key, ""), from_=EVER)
