"""Firn's front end: Streamlit, which knows nothing but the address of the search API."""

import sys

from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK
from infra.local.service import Launch, Service, Site, ready_page
from infra.local.state import StackState


def _needs(_: StackState) -> tuple[str, ...]:
    return ("query",)


def _prepare(site: Site) -> Launch:
    return Launch(
        command=(sys.executable, "-m", "ui", "serve", "--host", LOOPBACK, "--port", str(site.port)),
        address=f"http://{LOOPBACK}:{site.port}",
        folder=REPOSITORY,
        environment={"FIRN_UI_API": site.stack.record("query").address},
    )


SERVICE = Service(name="ui", prepare=_prepare, probe=ready_page("/_stcore/health"), needs=_needs)
