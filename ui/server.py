"""The front end as an ASGI application, which `python -m ui serve` has Streamlit run: the pages of `app.py`
behind the guard. What Streamlit has to know to log people in stays in this process's memory."""

from pathlib import Path

from starlette.middleware import Middleware
from streamlit.starlette import App

from ui.page_guard import PageGuard
from ui.settings import allowed_hosts, allowed_origins, auth_section, host

auth = auth_section()
app = App(
    Path(__file__).with_name("app.py"),
    middleware=[
        Middleware(PageGuard, host=host(), allowed_hosts=allowed_hosts(), allowed_origins=allowed_origins())
    ],
    secrets=None if auth is None else {"auth": auth},
)
