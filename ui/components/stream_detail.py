"""One stream: its columns and their types, how long its rows are kept, its end and its return."""

from typing import Any

import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api
from ui.components import legal_holds, row_changes
from ui.components.message import show_error
from ui.components.plain_text import code, plain
from ui.components.wording import count, period, short_time, size

TYPES = ("string", "boolean", "int", "long", "double", "timestamptz", "date")


def show(tenant: str, stream: str) -> None:
    """Everything about a stream that the key may see, and what it may change."""
    try:
        detail = api().get("/streams/detail", tenant=tenant, stream=stream)
    except ApiError as error:
        show_error(error)
        return
    st.subheader(f"{plain(tenant)} / {plain(stream)}", anchor=False)
    st.caption(
        f"{code(detail['table'])} in Trino · {count(detail['snapshots'], 'snapshot')} · "
        f"{count(detail['delete_files'], 'delete file')}"
    )
    row_changes.show(detail)
    if detail["parked"]:
        st.warning(
            f"Records of this stream are parked: {plain(detail['parked'])}. They wait in Kafka until the "
            "table can be written.",
            icon=":material/pause_circle:",
        )
    columns, retention, end = st.tabs(["Columns", "Retention", "Delete"])
    with columns:
        _columns(tenant, stream, detail["schema"])
    with retention:
        _retention(tenant, stream, detail["retention"])
    with end:
        _delete(tenant, stream)


def _columns(tenant: str, stream: str, columns: list[dict[str, Any]]) -> None:
    frame = {
        "column": [column["name"] for column in columns],
        "type": [column["type"] + (" (declared)" if column["declared"] else "") for column in columns],
        "in records": [column["path"] or ("set by Firn" if column["system"] else "") for column in columns],
        "older values in": [", ".join(column["older"]) for column in columns],
    }
    st.dataframe(
        pd.DataFrame(frame), hide_index=True, width="stretch", height=min(38 + 35 * len(columns), 420)
    )
    with st.form("declare", border=False):
        name, kind, send = st.columns([3, 2, 1], vertical_alignment="bottom")
        field = name.text_input(
            "Field",
            help=(
                "Declared before or after records show it. What was stored before stays searchable in a "
                "column of its own."
            ),
        )
        wanted = kind.selectbox("Type", TYPES, index=3)
        if send.form_submit_button("Declare", width="stretch") and field:
            _declare({"tenant": tenant, "stream": stream, "field": field, "type": wanted})


def _declare(body: dict[str, Any]) -> None:
    try:
        done = api().post("/streams/types", body)
    except ApiError as error:
        show_error(error)
        return
    said = f"{plain(done['field'])} is {plain(done['type'])}" + (
        f"; what was stored before is in {plain(done['older'])}" if done["older"] else ""
    )
    st.success(f"{said}." if done["changed"] else f"{said} already.")
    if done["suggestion"]:
        st.warning(f"No record has shown this field yet. Did you mean {plain(done['suggestion'])}?")


def _retention(tenant: str, stream: str, told: dict[str, Any]) -> None:
    oldest = f" The oldest row is of {code(told['oldest_row'])}." if told["oldest_row"] else ""
    set_by = f" Set by {code(told['set_by'])}." if told["set_by"] else ""
    st.markdown(f"Rows are kept **{plain(_kept(told))}**.{set_by}{oldest}")
    _form("/streams/retention", {"tenant": tenant, "stream": stream}, "Keep rows of this stream for")
    st.markdown(f"**All streams of {plain(tenant)}** that say nothing themselves")
    _form("/tenants/retention", {"tenant": tenant}, "Keep their rows for")
    legal_holds.show(tenant, stream)


def _kept(told: dict[str, Any]) -> str:
    """How long, and who says so."""
    how_long = "for ever" if told["in_force"] == "forever" else f"for {told['in_force']}"
    whose = {"stream": "the stream's own setting", "tenant": "its tenant's", "lake": "the lake's"}
    return f"{how_long} ({whose.get(told['said_by'], 'nobody has said how long')})"


def _form(route: str, whose: dict[str, str], label: str) -> None:
    key = "-".join((route, *whose.values()))
    typed = st.text_input(
        plain(label), placeholder="30d, 720h, forever; empty: as the next one above says", key=f"keep-{key}"
    )
    body = {**whose, "retention": typed.strip() or None}
    look, keep = st.columns(2)
    if look.button("What would go?", width="stretch", icon=":material/visibility:", key=f"look-{key}"):
        _ask_retention(route, {**body, "dry_run": True}, "would go")
    if keep.button("Set retention", width="stretch", type="primary", key=f"set-{key}"):
        _ask_retention(route, body, "go with the next daily maintenance")


def _ask_retention(route: str, body: dict[str, Any], goes: str) -> None:
    try:
        told = api().post(route, body)
    except ApiError as error:
        show_error(error)
        return
    gone, stays = told["goes"], told["stays"]
    st.info(
        f"**{count(gone['rows'], 'row')}** in {count(gone['files'], 'file')} ({size(gone['bytes'])}) "
        f"{plain(goes)}; "
        f"{count(stays['rows'], 'row')} ({size(stays['bytes'])}) stay"
        + (f", those from {code(told['first_kept'])} on." if told.get("first_kept") else ".")
        + (
            f" Of these {count(told['held']['rows'], 'row')} would go but for legal holds."
            if told["held"]["rows"]
            else ""
        )
    )


def _delete(tenant: str, stream: str) -> None:
    try:
        window_s = api().get("/streams/dropped", tenant=tenant)["undo_window_s"]
    except ApiError as error:
        show_error(error)
        return
    keep = "keep them"
    chosen = st.radio(
        "Its files",
        ["remove them when it cannot be brought back any more", keep],
        horizontal=True,
        disabled=window_s is None,
    )
    files = "keep" if chosen == keep else "after-undo"
    st.markdown(f"The stream disappears from searches at once. {what_follows(window_s, files)}")
    typed = st.text_input("Type the stream's name to delete it", key=f"delete-{tenant}-{stream}")
    if st.button("Delete stream", type="primary", disabled=typed != stream, icon=":material/delete:"):
        try:
            done = api().delete("/streams", tenant=tenant, stream=stream, files=files)
        except ApiError as error:
            show_error(error)
            return
        back = (
            "There is no undo, and its files stay"
            if window_s is None
            else f"“Deleted streams” below brings it back until {_minute(done['purge_due'])} at least"
            if done["purge_due"]
            else "“Deleted streams” below brings it back, and its files stay"
        )
        st.session_state["said"] = f"{plain(tenant)} / {plain(stream)} is deleted. {back}."
        st.rerun()


def what_follows(window_s: float | None, files: str = "after-undo") -> str:
    """What a delete does to the files, as the catalog has it. `window_s`: how long it can be undone, None
    where there is no undo; `files`: what was chosen."""
    if window_s is None:
        return (
            "This catalog has **no undo**, and its files stay on the storage until somebody removes them "
            "there."
        )
    if files == "keep":
        return "It can be brought back, and its files stay until an administrator has them removed."
    return (
        f"It can be brought back for **{period(window_s)}**; the first daily maintenance after that "
        "removes its files **for good**."
    )


def show_dropped(tenant: str) -> None:
    """Deleted streams of a tenant, each with what becomes of its files, the button that brings it back, and
    the one that removes them; then those whose files are gone."""
    try:
        told = api().get("/streams/dropped", tenant=tenant)
    except ApiError as error:
        show_error(error)
        return
    dropped = told["dropped"]
    if not dropped:
        st.caption(f"No stream of {plain(tenant)} is deleted.")
    for each in dropped:
        text, button, more = st.columns([5, 1, 1], vertical_alignment="center")
        text.markdown(f"{plain(each['stream'])} :gray[deleted {_minute(each['dropped_at'])}; {_fate(each)}]")
        if button.button(
            "Bring back", key=f"undo-{each['id']}", disabled=not each["restorable"], width="stretch"
        ):
            try:
                api().post("/streams/undo", {"tenant": tenant, "stream": each["stream"]})
            except ApiError as error:
                show_error(error)
                return
            st.session_state["said"] = (
                f"{plain(tenant)} / {plain(each['stream'])} is back, with all its rows."
            )
            st.rerun()
        with more.popover("Remove", width="stretch", disabled=each["at_once"]):
            _purge_now(tenant, each)
    for each in told["purged"]:
        st.caption(
            f"{plain(each['stream'])}: deleted {_minute(each['dropped_at'])}; its "
            f"{count(each['files'], 'file')} are gone since {_minute(each['purged_at'])}."
        )


def _purge_now(tenant: str, dropped: dict[str, Any]) -> None:
    """Has its files removed without waiting, by who may."""
    st.markdown(
        "Its files go **for good** within maintenance's next minutes, without waiting. This takes an "
        "administrator's key."
    )
    typed = st.text_input("Type the stream's name to remove its files", key=f"typed-{dropped['id']}")
    key, is_meant = f"purge-{dropped['id']}", typed == dropped["stream"]
    if st.button("Remove its files now", key=key, type="primary", disabled=not is_meant):
        try:
            api().post("/streams/purge", {"tenant": tenant, "id": dropped["id"], "now": True})
        except ApiError as error:
            show_error(error)
            return
        st.session_state["said"] = (
            f"The files of {plain(tenant)} / {plain(dropped['stream'])} are being removed."
        )
        st.rerun()


def _fate(dropped: dict[str, Any]) -> str:
    if dropped["held_by"]:
        return f"its files stay: {plain(dropped['held_by'])} is on it"
    if not dropped["restorable"]:
        return "its files are being removed"
    if dropped["at_once"]:
        return "its files go with maintenance's next minutes"
    if not dropped["purge_due"]:
        return "its files stay until an administrator asks for their purge"
    return f"its files go with the first daily maintenance after {_minute(dropped['purge_due'])}"


def _minute(moment: str) -> str:
    return plain(f"{short_time(moment)[:16]} UTC")
