"""Boards as the pages read and write them."""

import re
from collections.abc import Collection
from typing import Any
from urllib.parse import quote

import streamlit as st

from ui.api_client import api, bearer
from ui.settings import api_uri

KEPT_S = 10.0
SIZES = ("small", "medium", "large")
SHOWN = ("table", "bars", "lines", "figure")
NAME_CHARACTERS = 60


@st.cache_data(ttl=KEPT_S, max_entries=256, show_spinner=False)
def _titles(uri: str, key: str | None, tenant: str) -> dict[str, str]:  # noqa: ARG001 - whose answer it is
    return {each["name"]: each["title"] for each in api().get("/boards", tenant=tenant)["boards"]}


def titles_of(tenant: str, wanted: str = "") -> dict[str, str]:
    """The titles of a tenant's boards by their names; where `wanted` is not among them they are asked for
    anew. Raises ApiError."""
    who = (api_uri(), bearer(), tenant)
    titles = _titles(*who)
    if wanted and wanted not in titles:
        _titles.clear(*who)
        titles = _titles(*who)
    return titles


def board_of(tenant: str, name: str) -> dict[str, Any]:
    """A board with its tiles and its version. Raises ApiError."""
    return api().get(f"/boards/{quote(name, safe='')}", tenant=tenant)


def keep(tenant: str, name: str, board: dict[str, Any], version: int) -> None:
    """Writes a board over the version that was changed. Raises ApiError, also where it is another one by
    now."""
    body = {"tenant": tenant, "board": board, "version": version}
    api().put(f"/boards/{quote(name, safe='')}", body)
    _titles.clear(api_uri(), bearer(), tenant)


def drop(tenant: str, name: str) -> None:
    """Deletes a board. Raises ApiError."""
    api().delete(f"/boards/{quote(name, safe='')}", tenant=tenant)
    _titles.clear(api_uri(), bearer(), tenant)


def name_for(title: str, taken: Collection[str], otherwise: str = "board") -> str:
    """A name for a new board, as addresses and files have it. `otherwise`: where the title has no letter that
    may be in one."""
    made = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:NAME_CHARACTERS].strip("-") or otherwise
    return next(
        name for at in range(len(taken) + 1) if (name := f"{made}-{at + 1}" if at else made) not in taken
    )
