"""What changes of rows do to a stream: its mode and key, and what became of the changes so far."""

from typing import Any

import streamlit as st

from ui.components.plain_text import code, plain
from ui.components.wording import count

WHAT = {
    "history": "Every change of a row is a row.",
    "upsert": "One row per key: the last change wins, a delete removes it.",
    "first_wins": "One row per key: what is there is not written again.",
    "delete_only": "Deletes remove rows of their key; other changes are passed over.",
}
ORDERS = {"position": "by their position in the source", "time": "by the source's time"}
# What became of changes, as people look for it; everything else is told together.
SHOWN = {
    "inserted": "Inserted",
    "updated": "Updated",
    "deleted": "Deleted",
    "passed_over": "Passed over",
    "older": "Late",
}
LATE = "Older than the row that they would have replaced: passed over."


def show(detail: dict[str, Any]) -> None:
    """Nothing for a stream of records."""
    if detail["mode"] in (None, "append"):
        return
    key = f" Its key is {', '.join(code(name) for name in detail['key'])}." if detail["key"] else ""
    by = ORDERS.get(detail["order_by"])
    order = f" Changes are ordered {plain(by)}." if by else ""
    files = (
        f" {count(detail['buckets'], 'bucket')}, {count(detail['deleted_rows'], 'deleted row')} in files."
        if detail["buckets"]
        else ""
    )
    meaning = plain(WHAT.get(detail["mode"], "What its mode means is not known here."))
    st.markdown(f"**{plain(detail['mode'])}** {meaning}{key}{order}{files}")
    if detail["changes"] is None:
        return
    row = st.container(horizontal=True)
    for name, label in SHOWN.items():
        row.metric(
            plain(label), f"{detail['changes'].get(name, 0):,}", help=plain(LATE) if name == "older" else None
        )
    others = {name: number for name, number in detail["changes"].items() if name not in SHOWN}
    if others:
        listed = ", ".join(f"{number:,} {plain(name)}" for name, number in others.items())
        st.caption(f"Without effect: {listed}")
