"""Sentences to the person who looks: errors, warnings, and what to do where there is nothing to show."""

from typing import Any

import streamlit as st

from ui.api_client import ApiError
from ui.components.plain_text import plain


def show_error(error: ApiError, query: str = "") -> None:
    """An error as a sentence, with the place in the query where it has one."""
    st.error(_sentence(error.message, error.suggestion), icon=":material/error:")
    if query and error.position is not None:
        length = max(1, min(error.length or 1, len(query) - error.position + 1))
        st.code(f"{query}\n{' ' * error.position}{'^' * length}", language=None)


def show_warnings(warnings: list[dict[str, Any]]) -> None:
    """What the API says about a query that it could answer."""
    for warning in warnings:
        st.warning(_sentence(warning["message"], warning.get("suggestion")), icon=":material/warning:")


def empty(title: str, what_to_do: str) -> None:
    """Nothing to show: why, and what to do about it, both as Markdown."""
    with st.container(border=True):
        st.markdown(f"**{title}**")
        st.markdown(what_to_do)


def _sentence(message: str, suggestion: str | None) -> str:
    first = message[:1].upper() + message[1:]
    said = plain(first.rstrip(".") + ".")
    return said if not suggestion else f"{said} {plain(suggestion[:1].upper() + suggestion[1:])}."
