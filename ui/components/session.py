"""Who looks at the page: nobody in particular where the API needs no key, else the holder of one."""

import streamlit as st

from ui.api_client import ApiError
from ui.components.message import show_error
from ui.components.plain_text import plain
from ui.components.stream_choice import tenant_names
from ui.exposure import is_loopback


def sign_in() -> None:
    """Asks for an API key where the API wants one, and stops the page until there is one in force."""
    try:
        tenant_names()
    except ApiError as error:
        if error.status != 401:
            show_error(error)
            st.stop()
    else:
        if st.session_state.get("key"):
            _offer_to_sign_out()
        elif not is_loopback(
            st.get_option("server.address") or ""
        ):  # started by Streamlit itself, past the check of `python -m ui serve`
            st.error(
                "These pages are reachable from outside, and the search API asks nobody for a key. Start "
                "them with `python -m ui serve`."
            )
            st.stop()
        return
    if st.session_state.pop("key", None):
        st.error("This key is not in force. Check that it was copied whole.")
    _, middle, _ = st.columns([1, 2, 1])
    with middle, st.form("sign-in"):
        st.subheader("Sign in")
        st.write("Enter an API key. It is kept in this browser session alone.")
        key = st.text_input("API key", type="password", placeholder="firn_...")
        if st.form_submit_button("Sign in", type="primary") and key:
            st.session_state["key"] = key.strip()
            st.rerun()
    st.stop()


def _offer_to_sign_out() -> None:
    with st.sidebar:
        st.caption("signed in with key " + plain(st.session_state["key"].split("_")[1]))
        if st.button("Sign out", icon=":material/logout:"):
            st.session_state.clear()
            st.rerun()
