"""Tenants and their streams: rows, files, freshness; of one stream its columns, its retention, its end and
its return."""

from time import monotonic
from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api, bearer
from ui.components import stream_detail, tenant_usage
from ui.components.message import empty, show_error
from ui.components.plain_text import code, plain
from ui.components.stream_choice import NOTHING_YET, tenant_names
from ui.components.wording import age, count, size
from ui.url_state import SearchState, to_params

PROBLEMS_SHOWN = 5
KEPT_S = 10.0
PAGE_TENANTS = 50  # each costs the API a look at its tables


def show() -> None:
    """The page."""
    st.title("Tenants and streams")
    place = st.empty()  # always there, so that what was opened below it stays open when the message goes
    if said := st.session_state.pop("said", None):
        place.success(said)
    try:
        names = tenant_names()
        if not names:
            empty("No tenant has any rows yet.", NOTHING_YET)
            return
        part = st.text_input("Filter", placeholder="part of a tenant's name", label_visibility="collapsed")
        passed = _passed(part.strip())
        found = known_tenants(part.strip(), passed[-1] if passed else "", anew=said is not None)
    except ApiError as error:
        show_error(error)
        return
    tenants = found["tenants"]
    if not tenants:
        empty("No tenant has that in its name.", "Shorten the filter.")
        return
    # One that is new may not be among the names yet.
    matching = max(sum(part.strip().casefold() in name.casefold() for name in names), len(tenants))
    is_all = not passed and not found["next"]
    _numbers(tenants, matching, is_all=is_all)
    for tenant in [tenant for tenant in tenants if tenant["warnings"]][:PROBLEMS_SHOWN]:
        st.warning(
            f"Tenant {plain(tenant['tenant'])}: its name {plain('; '.join(tenant['warnings']))}.",
            icon=":material/visibility_off:",
        )
    if not is_all:
        _turn(passed, found["next"], len(tenants), matching)
    if streams := [stream for tenant in tenants for stream in tenant["streams"]]:
        _list(streams, key=f"streams-{part}-{len(passed)}")
    else:
        empty("These tenants have no streams.", NOTHING_YET)
    shown = sorted(tenant["tenant"] for tenant in tenants)
    with st.expander("Limits and usage", icon=":material/speed:"):
        tenant_usage.show(shown, is_only=len(names) == 1)
    with st.expander("Deleted streams", icon=":material/restore_from_trash:"):
        stream_detail.show_dropped(st.selectbox("Of tenant", shown))


def known_tenants(part: str, after: str, *, anew: bool) -> dict[str, Any]:
    """What the API says of a page of the tenants that have `part` in their names, kept for a moment: it
    loads each of their tables, and every click draws the page. `after`: `next` of the page before; `anew`:
    something was changed. Raises ApiError."""
    kept, asked = st.session_state.get("tenants_kept"), (bearer(), part, after)
    if anew or kept is None or kept["asked"] != asked or monotonic() - kept["at_s"] > KEPT_S:
        told = api().get("/tenants", limit=PAGE_TENANTS, contains=part, after=after)
        kept = {"asked": asked, "found": told, "at_s": monotonic()}
        st.session_state["tenants_kept"] = kept
    return dict(kept["found"])


def _passed(part: str) -> list[str]:
    """Where the pages after the first one began, up to this one; another filter begins anew."""
    kept = st.session_state.get("tenants_passed")
    if kept is None or kept["part"] != part:
        kept = st.session_state["tenants_passed"] = {"part": part, "after": []}
    return list[str](kept["after"])


def _numbers(tenants: list[dict[str, Any]], matching: int, *, is_all: bool) -> None:
    """How many tenants there are, and what those of this page have."""
    here = "" if is_all else " here"
    numbers = {
        "Tenants": f"{matching:,}",
        f"Rows{here}": f"{sum(tenant['rows'] for tenant in tenants):,}",
        f"Files{here}": f"{sum(tenant['files'] for tenant in tenants):,}",
        f"Size{here}": size(sum(tenant["bytes"] for tenant in tenants)),
    }
    row = st.container(horizontal=True)
    for label, value in numbers.items():
        row.metric(plain(label), value)


def _turn(passed: list[str], following: str | None, shown: int, matching: int) -> None:
    """The way to the pages before and after this one."""

    def go(after: list[str]) -> None:
        st.session_state["tenants_passed"]["after"] = after

    first = len(passed) * PAGE_TENANTS
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Previous", icon=":material/chevron_left:", disabled=not passed, on_click=go, args=(passed[:-1],)
        )
        st.button(
            "Next",
            icon=":material/chevron_right:",
            disabled=not following,
            on_click=go,
            args=([*passed, following],),
        )
        st.caption(f"Tenants {first + 1:,} to {first + shown:,} of {matching:,}")


def _list(shown: list[dict[str, Any]], key: str) -> None:
    """The streams, and the one that is chosen. `key`: of the page, so that a choice does not go on to the
    next one."""
    event = st.dataframe(
        pd.DataFrame(
            {
                "tenant": [stream["tenant"] for stream in shown],
                "stream": [stream["stream"] for stream in shown],
                "mode": [stream["mode"] or "" for stream in shown],
                "rows": [stream["rows"] for stream in shown],
                "files": [stream["files"] for stream in shown],
                "size": [size(stream["bytes"]) for stream in shown],
                "newest row": [age(stream["newest_row"]) for stream in shown],
                "committed": [age(stream["committed_at"]) for stream in shown],
                "columns": [stream["columns"] for stream in shown],
                "search": [_search_link(stream["tenant"], stream["stream"]) for stream in shown],
            }
        ),
        hide_index=True,
        width="stretch",
        height=min(38 + 35 * len(shown), 460),
        on_select="rerun",
        selection_mode="single-row",
        key=key,
        column_config={
            "rows": st.column_config.NumberColumn(format="localized"),
            "files": st.column_config.NumberColumn(format="localized"),
            "search": st.column_config.LinkColumn(
                display_text="open", help="Searches the stream's last 24 hours"
            ),
        },
    )
    for stream in [stream for stream in shown if stream["problem"]][:PROBLEMS_SHOWN]:
        st.warning(f"{code(stream['table'])}: {plain(stream['problem'])}", icon=":material/error:")
    st.caption(
        f"{count(len(shown), 'stream')}. Choose one to see its columns, retention, and how to delete it."
    )
    picked = event["selection"]["rows"]
    if picked and picked[0] < len(shown):
        stream_detail.show(shown[picked[0]]["tenant"], shown[picked[0]]["stream"])


def _search_link(tenant: str, stream: str) -> str:
    return "/search?" + urlencode(to_params(SearchState(tenant=tenant, stream=stream, from_="now-24h")))
