"""The front end as an ASGI application, which `python -m ui serve` has Streamlit run: the pages of `app.py`
behind the guard, and the routes by which people log in."""

from pathlib import Path

from starlette.middleware import Middleware
from streamlit.starlette import App

from ui.login.visitor import login
from ui.page_guard import PageGuard
from ui.settings import allowed_hosts, allowed_origins, host

door = login()
app = App(
    Path(__file__).with_name("app.py"),
    routes=[] if door is None else door.routes(),
    middleware=[
        Middleware(PageGuard, host=host(), allowed_hosts=allowed_hosts(), allowed_origins=allowed_origins())
    ],
)
