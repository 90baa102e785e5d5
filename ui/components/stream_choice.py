"""Which tenants and streams there are to choose from: asked for again after a moment, not at every click."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ui.api_client import api, bearer
from ui.components.message import empty
from ui.components.plain_text import plain
from ui.settings import api_uri

KEPT_S = 10.0
PAGE = 10_000
LOOKED_AT_MAX = 20
NOTHING_YET = (
    "Send a record with a `tenant` header to one of the input topics; its table appears with the next flush."
)


@st.cache_data(ttl=KEPT_S, max_entries=256, show_spinner=False)
def _names(uri: str, key: str | None) -> list[str]:  # noqa: ARG001 - whose answer it is
    names, after = list[str](), ""
    while True:
        page = api().get("/tenants/names", after=after, limit=PAGE)
        names += page["tenants"]
        after = page["next"]
        if not after:
            return sorted(names, key=str.casefold)


@st.cache_data(ttl=KEPT_S, max_entries=1_024, show_spinner=False)
def _streams(uri: str, key: str | None, tenant: str) -> dict[str, dict[str, Any]]:  # noqa: ARG001
    return {stream["stream"]: stream for stream in api().get("/streams", tenant=tenant)["streams"]}


def tenant_names(wanted: str = "") -> Sequence[str]:
    """The tenants of this session's key; where `wanted` is not among them they are asked for anew. Raises
    ApiError."""
    who = (api_uri(), bearer())
    names = _names(*who)
    if wanted and wanted not in names:
        _names.clear(*who)
        names = _names(*who)
    return names


def streams_of(tenant: str, wanted: str = "") -> Mapping[str, dict[str, Any]]:
    """The streams of a tenant with what is known of each, likewise. Raises ApiError."""
    who = (api_uri(), bearer(), tenant)
    streams = _streams(*who)
    if not streams or (wanted and wanted not in streams):
        _streams.clear(*who)
        streams = _streams(*who)
    return streams


def first_with_streams(names: Sequence[str]) -> str:
    """The tenant a page begins with: of the first ones the first that has something to show. Raises
    ApiError."""
    return next((name for name in names[:LOOKED_AT_MAX] if streams_of(name)), names[0])


def choose_tenant(place: DeltaGenerator, page: str, *, help_text: str | None = None) -> str | None:
    """A list to choose a tenant from; None where there is none, after saying so. Raises ApiError."""
    names, key = tenant_names(), f"tenant-of-{page}"
    if not names:
        empty("There are no logs yet.", NOTHING_YET)
        return None
    if st.session_state.get(key) not in names:
        st.session_state[key] = first_with_streams(names)
    return str(place.selectbox("Tenant", names, key=key, help=help_text))


def no_streams(tenant: str) -> None:
    """What to do about a tenant that has nothing to show."""
    empty(f"{plain(tenant)} has no streams.", NOTHING_YET)
