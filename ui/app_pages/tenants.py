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
from ui.components.wording import age, count, size
from ui.url_state import SearchState, to_params

PROBLEMS_SHOWN = 5
KEPT_S = 10.0


def show() -> None:
    """The page."""
    st.title("Tenants and streams")
    place = st.empty()  # always there, so that what was opened below it stays open when the message goes
    if said := st.session_state.pop("said", None):
        place.success(said)
    try:
        found = known_tenants(anew=said is not None)
    except ApiError as error:
        show_error(error)
        return
    tenants = found["tenants"]
    if not tenants:
        empty(
            "No tenant has any rows yet.",
            "Send a record with a `tenant` header to one of the input topics; its table appears with the "
            "next flush.",
        )
        return
    streams = [stream for tenant in tenants for stream in tenant["streams"]]
    numbers = {
        "Tenants": f"{len(tenants):,}" + ("+" if found["next"] else ""),
        "Rows": f"{sum(stream['rows'] for stream in streams):,}",
        "Files": f"{sum(stream['files'] for stream in streams):,}",
        "Size": size(sum(stream["bytes"] for stream in streams)),
    }
    row = st.container(horizontal=True)
    for label, value in numbers.items():
        row.metric(plain(label), value)
    if found["next"]:
        st.caption(f"These are the first {len(tenants):,} tenants. The search page knows all of them.")
    for tenant in [tenant for tenant in tenants if tenant["warnings"]][:PROBLEMS_SHOWN]:
        st.warning(
            f"Tenant {plain(tenant['tenant'])}: its name {plain('; '.join(tenant['warnings']))}.",
            icon=":material/visibility_off:",
        )
    wanted = st.text_input(
        "Filter", placeholder="part of a tenant's or stream's name", label_visibility="collapsed"
    )
    shown = [
        stream for stream in streams if wanted.lower() in f"{stream['tenant']} {stream['stream']}".lower()
    ]
    if shown:
        _list(shown)
    else:
        empty("No tenant or stream has that in its name.", "Shorten the filter.")
    with st.expander("Limits and usage", icon=":material/speed:"):
        tenant_usage.show(sorted({tenant["tenant"] for tenant in tenants}))
    with st.expander("Deleted streams", icon=":material/restore_from_trash:"):
        stream_detail.show_dropped(
            st.selectbox("Of tenant", sorted({tenant["tenant"] for tenant in tenants}))
        )


def known_tenants(*, anew: bool) -> dict[str, Any]:
    """What the API says of the first tenants, kept for a moment: it loads each of their tables, and every
    click draws the page. `anew`: something was changed. Raises ApiError."""
    kept, whose = st.session_state.get("tenants_kept"), bearer()
    if anew or kept is None or kept["whose"] != whose or monotonic() - kept["at_s"] > KEPT_S:
        kept = {"whose": whose, "found": api().get("/tenants", limit=1000), "at_s": monotonic()}
        st.session_state["tenants_kept"] = kept
    return dict(kept["found"])


def _list(shown: list[dict[str, Any]]) -> None:
    """The streams, and the one that is chosen."""
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
        key="streams",
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
