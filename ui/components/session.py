"""Who looks at the page: nobody in particular where the API needs no key, else a person who has logged in at
the issuer, or the holder of a key."""

import streamlit as st

from ui.api_client import ApiError
from ui.components.message import show_error
from ui.components.plain_text import plain
from ui.components.stream_choice import tenant_names
from ui.exposure import is_loopback
from ui.settings import has_login

NAMES = ("preferred_username", "name", "email", "sub")  # claims that say what a person is called


def sign_in() -> None:
    """Asks for an API key, or has people log in, where the API wants to know who asks, and stops the page
    until it lets them in. Whose token has ended is told so, and may log in again."""
    token = _token()
    if token is not None and "key" not in st.session_state:
        st.session_state["key"] = token
    try:
        tenant_names()
    except ApiError as error:
        if error.status == 401:
            _ask_who(_refusal(error, token))
        else:
            show_error(error)
            if token is not None:
                _offer_to_log_out()
        st.stop()
    _offer_to_leave(token)


def _refusal(error: ApiError, token: str | None) -> str:
    """Why what was shown does not count; empty where nothing was. It is forgotten."""
    shown = st.session_state.pop("key", None)
    if shown is None:
        return ""
    if shown == token:
        return f"Your session has ended: {error.message}."
    return "This key is not in force. Check that it was copied whole."


def _ask_who(refusal: str) -> None:
    if refusal:
        st.error(plain(refusal))
    _, middle, _ = st.columns([1, 2, 1])
    with middle:
        if not has_login():
            _ask_for_key()
            return
        st.subheader("Log in")
        if st.button("Log in", icon=":material/login:", type="primary"):
            st.login()
        with st.expander("Use an API key"):
            _ask_for_key()


def _offer_to_leave(token: str | None) -> None:
    """A way out for whoever is in, and none in for strangers."""
    shown = st.session_state.get("key")
    if token is not None and shown == token:
        _offer_to_log_out()
    elif shown:
        _offer_to_sign_out()
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


def _token() -> str | None:
    """The token of whoever has logged in, which the API gets; None: nobody has."""
    if not has_login() or not st.user.is_logged_in:
        return None
    return next(iter(dict(st.user.tokens).values()), None)


def _offer_to_log_out() -> None:
    with st.sidebar:
        called = next((str(st.user[name]) for name in NAMES if st.user.get(name)), "")
        st.caption("logged in as " + plain(called))
        if st.button("Log out", icon=":material/logout:"):
            st.session_state.clear()
            st.logout()


def _offer_to_sign_out() -> None:
    with st.sidebar:
        st.caption("signed in with key " + plain(st.session_state["key"].split("_")[1]))
        if st.button("Sign out", icon=":material/logout:"):
            st.session_state.clear()
            st.rerun()
