"""Who looks at the page: nobody in particular where the API needs no key, else a person who has logged in at
the issuer, or the holder of a key."""

from html import escape

import streamlit as st

from ui.api_client import ApiError, bearer
from ui.components.message import show_error
from ui.components.plain_text import plain
from ui.components.stream_choice import tenant_names
from ui.components.tailing import leave
from ui.login import visitor
from ui.login.routes import LOGOUT, login_link
from ui.settings import has_login, is_loopback

LOOK = (
    "display:inline-block;padding:.4rem .9rem;border:1px solid;border-radius:6px;text-decoration:none;"
    "color:inherit"
)


def sign_in(address: str) -> None:
    """Asks for an API key, or has people log in, where the API wants to know who asks, and stops the page
    until it lets them in. Whose session has ended is told so, and comes back to `address` by logging in."""
    try:
        tenant_names()
    except ApiError as error:
        if error.status == 401:
            leave()
            _ask_who(_refusal(error), address)
        else:
            show_error(error)
            if visitor.tokens() is not None:
                _offer_to_log_out()
        st.stop()
    _offer_to_leave()


def _refusal(error: ApiError) -> str:
    """Why what was shown does not count; empty where nothing was. A key is forgotten; in place of a token the
    issuer may give another."""
    shown = bearer()
    if shown is None:
        return ""
    if st.session_state.pop("key", None) is not None:
        return "This key is not in force. Check that it was copied whole."
    if visitor.replaces(shown):
        st.rerun()
    return f"Your session has ended: {error.message}."


def _ask_who(refusal: str, address: str) -> None:
    if refusal:
        st.error(plain(refusal))
    _, middle, _ = st.columns([1, 2, 1])
    with middle:
        if not has_login():
            _ask_for_key()
            return
        st.subheader("Log in")
        _link(login_link(address), "Log in")
        with st.expander("Use an API key"):
            _ask_for_key()


def _offer_to_leave() -> None:
    """A way out for whoever is in, and none in for strangers."""
    if "key" in st.session_state:
        _offer_to_sign_out()
    elif visitor.tokens() is not None:
        _offer_to_log_out()
    elif not is_loopback(
        st.get_option("server.address") or ""
    ):  # started by Streamlit itself, past the check of `python -m ui serve`
        st.error(
            "These pages are reachable from outside, and the search API asks nobody for a key. Start "
            "them with `python -m ui serve`."
        )
        st.stop()


def _ask_for_key() -> None:
    is_alone = not has_login()
    with st.form("sign-in"):
        if is_alone:
            st.subheader("Sign in")
        st.write("Enter an API key. It is kept in this browser session alone.")
        key = st.text_input("API key", type="password", placeholder="firn_...")
        if st.form_submit_button("Sign in", type="primary" if is_alone else "secondary") and key:
            st.session_state["key"] = key.strip()
            st.rerun()


def _offer_to_log_out() -> None:
    tokens = visitor.tokens()
    with st.sidebar:
        st.caption("logged in as " + plain("" if tokens is None else tokens.called))
        _link(LOGOUT, "Log out")


def _offer_to_sign_out() -> None:
    with st.sidebar:
        st.caption("signed in with key " + plain(st.session_state["key"].split("_")[1]))
        if st.button("Sign out", icon=":material/logout:"):
            leave()
            st.session_state.clear()
            st.rerun()


def _link(target: str, label: str) -> None:
    """A link that is followed in this tab; Streamlit's own opens another."""
    st.html(f'<a href="{escape(target)}" style="{LOOK}">{escape(label)}</a>')
