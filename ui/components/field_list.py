"""The fields of a stream beside the rows: choose columns, see top values, add or exclude one as a filter."""

from typing import Any

import streamlit as st

from ui.api_client import ApiError, api
from ui.components.message import show_error
from ui.components.plain_text import plain

VALUES = 8
CHARACTERS = 80


def show(body: dict[str, Any]) -> None:
    """Columns to show, and the values of one field."""
    try:
        fields = [
            field
            for field in _fields(body)
            if not field["system"] or field["name"] in ("severity", "message")
        ]
    except ApiError as error:
        show_error(error)
        return
    names = [field["name"] for field in fields]
    chosen = [name for name in st.session_state["columns"].split(",") if name in names]
    st.session_state["columns_chosen"] = chosen
    left, right = st.columns(2)
    left.multiselect(
        "Columns",
        names,
        key="columns_chosen",
        on_change=_keep_columns,
        placeholder="message",
        help="What the table shows beside the time",
    )
    about = {field["name"]: f"{field['name']} · {field['type']}{_covered(field)}" for field in fields}
    wanted = right.selectbox(
        "Top values of",
        names,
        index=None,
        format_func=lambda name: about[name],
        placeholder="choose a field",
        key="values_of",
    )
    if wanted:
        with right.container(gap=None):
            _values(body, wanted)


def _values(body: dict[str, Any], field: str) -> None:
    try:
        found = _top(body, field)
    except ApiError as error:
        show_error(error)
        return
    if not found["values"]:
        st.caption("No matching row has a value here.")
    for at, value in enumerate(found["values"]):
        line = st.container(horizontal=True, vertical_alignment="center", gap="small")
        line.markdown(f"{plain(str(value['value'])[:CHARACTERS])} :gray[{value['rows']:,}]")
        for name, icon, what, sign in (
            ("add", "add", "only these", ""),
            ("not", "remove", "without these", "NOT "),
        ):
            args = (field, value["value"], sign)
            line.button(
                "",
                icon=f":material/{icon}:",
                key=f"{name}-{at}",
                help=plain(what),
                type="tertiary",
                on_click=add_filter,
                args=args,
            )
    if found["sampled"]:
        st.caption("Counted over the newest rows only.")


def filter_text(field: str, value: object, sign: str) -> str:
    """A filter in the search language for one value of a field."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{sign}{field}:{quoted(text)}"


def quoted(text: str) -> str:
    """A text in the search language, as it is."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def add_filter(field: str, value: object, sign: str) -> None:
    """Narrows the search to rows with a value, or to those without it."""
    before = st.session_state["query"].strip()
    before = f"({before})" if " OR " in before or "||" in before else before
    st.session_state["query"] = (
        f"{before} AND {filter_text(field, value, sign)}" if before else filter_text(field, value, sign)
    )
    st.session_state.update(row="", pages=1, pin="")


def _keep_columns() -> None:
    st.session_state["columns"] = ",".join(st.session_state["columns_chosen"])


def _covered(field: dict[str, Any]) -> str:
    return "" if field["coverage"] is None else f" · {field['coverage']:.0%} of rows"


def _fields(body: dict[str, Any]) -> list[dict[str, Any]]:
    question = {name: body[name] for name in ("tenant", "stream", "from", "to")}
    kept = st.session_state.get("fields_answer")
    if kept is None or kept[0] != question:
        kept = (question, api().post("/fields", question)["fields"])
        st.session_state["fields_answer"] = kept
    return list(kept[1])


def _top(body: dict[str, Any], field: str) -> dict[str, Any]:
    question = {**body, "field": field, "limit": VALUES}
    kept = st.session_state.get("values_answer")
    if kept is None or kept[0] != question:
        kept = (question, api().post("/values", question))
        st.session_state["values_answer"] = kept
    return dict(kept[1])
