"""Who looks at a page, by the browser's cookie."""

from functools import cache

import streamlit as st

from ui.login.routes import Login
from ui.login.tokens import Tokens
from ui.settings import login_settings


@cache
def login() -> Login | None:
    """The one of this process; None where nobody logs in."""
    settings = login_settings()
    return None if settings is None else Login(settings)


def tokens() -> Tokens | None:
    """Those of the person who has logged in; None: nobody has."""
    door = login()
    return None if door is None else door.sessions.tokens(_session_id(door))


def replaces(refused: str) -> bool:
    """Returns whether the person has another token now than the one that the API refused."""
    door = login()
    return door is not None and door.sessions.replaces(_session_id(door), refused)


def _session_id(door: Login) -> str:
    # A websocket of another origin's page has this cookie too; the page guard lets none in.
    return st.context.cookies.get(door.cookie, "")
