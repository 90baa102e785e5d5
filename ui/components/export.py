"""All rows of a search as a file: asked for here, written in the background, fetched when done."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from ui.api_client import ApiError, api
from ui.components.message import show_error
from ui.components.plain_text import code, plain
from ui.components.wording import count, size

FORMATS = {"NDJSON": "ndjson", "CSV": "csv", "Parquet": "parquet"}
DOWNLOAD_BYTES_MAX = 200_000_000
SHOWN = 5
REFUSED = "export_refused"  # in the session's state, until it is shown


def show(bodies: Sequence[dict[str, Any]]) -> None:
    """The button that starts one of each stream that is searched, and the exports of their tenant."""
    with st.popover("Export", icon=":material/download:"):
        chosen = st.radio("Format", list(FORMATS), horizontal=True, key="export_format")
        safe = FORMATS[chosen] == "csv" and st.checkbox(
            "Safe for spreadsheets",
            value=True,
            help=(
                "Texts that begin like a formula (= + - @) get an apostrophe before them; every other value "
                "is exact"
            ),
        )
        asked = [{**body, "format": FORMATS[chosen], "spreadsheet_safe": safe} for body in bodies]
        st.button("Export all rows", type="primary", width="stretch", on_click=_start, args=(asked,))
        for error in st.session_state.pop(REFUSED, ()):
            show_error(error)
        if len(bodies) > 1:
            st.caption(f"Each of {len(bodies):,} streams becomes a file of its own.")
        _jobs(bodies[0]["tenant"])


def _start(bodies: Sequence[dict[str, Any]]) -> None:
    """Asks for the exports. A callback, because a run that another one interrupts before it has come to the
    button forgets the click."""
    refused = list[ApiError]()
    for body in bodies:
        try:
            api().post("/exports", body)
        except ApiError as error:
            refused.append(error)
    st.session_state[REFUSED] = refused


def _jobs(tenant: str) -> None:
    """Drawn anew again and again only while one is written: a button that is replaced at the moment of a
    click has no file to give."""
    try:
        jobs = _newest(tenant)
    except ApiError as error:
        show_error(error)
        return
    if any(job["state"] == "running" for job in jobs):
        _watch(tenant)
    else:
        _draw(jobs)


@st.fragment(run_every=2.0)
def _watch(tenant: str) -> None:
    try:
        jobs = _newest(tenant)
    except ApiError as error:
        show_error(error)
        return
    if not any(job["state"] == "running" for job in jobs):
        st.rerun()
    _draw(jobs)


def _newest(tenant: str) -> list[dict[str, Any]]:
    return list(api().get("/exports", tenant=tenant)["exports"][:SHOWN])


def _draw(jobs: list[dict[str, Any]]) -> None:
    for job in jobs:
        _job(job)


def _job(job: dict[str, Any]) -> None:
    said = (
        f"{plain(job['stream'])} · {plain(job['format'])} · {count(job['rows'], 'row')}, {size(job['bytes'])}"
    )
    if job["state"] == "running":
        st.progress(job["progress"], text=said)
    elif job["state"] == "failed":
        st.warning(plain(job["message"]))
    elif job["format"] == "parquet" or job["bytes"] > DOWNLOAD_BYTES_MAX:
        st.caption(
            f"{said}. Fetch its {count(len(job['parts']), 'file')} at "
            f"{code(api().uri + '/v1/exports/' + job['id'])}"
        )
    else:
        st.download_button(
            said,
            data=lambda: api().fetch(f"/exports/{job['id']}/file"),
            file_name=f"{job['stream']}.{job['format']}",
            key=f"file-{job['id']}",
            icon=":material/download:",
            on_click="ignore",  # A rerun at the click withdraws the file that the same click asks for
        )
