"""The routes that the services really have, from their own tables: (service, method, path) with every
parameter written as {}."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast
from unittest.mock import MagicMock

from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute, Mount, WebSocketRoute
from streamlit.web.server.starlette.starlette_app import create_streamlit_routes

from catalog.http.app import create_app as catalog_app
from infra.local.jvm_parts import REPOSITORY
from ingest.node.engines.local import LocalEngine
from ingest.serve.api import make_app as node_app
from ingest.serve.app import create_app as serve_app
from ingest.serve.tools import Tools
from lake.settings import CatalogSettings, IngestSettings, QuerySettings, TopicSettings
from query.api.app import create_app as query_app
from tests.ui.support.door import login_settings
from ui.login.routes import Login

RouteKey = tuple[str, str, str]
ROOMS = ("lake", "catalog", "ingest", "optimize", "query", "ui", "infra")
# Where HTTP servers are made, and what the matrix calls them; beside Streamlit, which is `ui`.
SERVERS = {
    "catalog/http/app.py": "catalog",
    "ingest/serve/api.py": "ingest-node",
    "ingest/serve/app.py": "ingest-serve",
    "optimize/__main__.py": "optimize",
    "query/api/app.py": "query",
}
_MAKES_ONE = re.compile(
    r"\b(?:FastAPI|Starlette|start_http_server|start_wsgi_server|make_server|\w*HTTPServer)\("
)
_PARAMETER = re.compile(r"\{[^}]*\}")


def plain(key: RouteKey) -> RouteKey:
    """A route without the names of its parameters."""
    service, method, path = key
    return service, method, _PARAMETER.sub("{}", path)


def files_with_servers() -> set[str]:
    """The modules of all rooms that make an HTTP server or application."""
    return {
        str(path.relative_to(REPOSITORY))
        for room in ROOMS
        for path in (REPOSITORY / room).rglob("*.py")
        if _MAKES_ONE.search(path.read_text())
    }


def served() -> set[RouteKey]:
    """All of them. `optimize` has no table: prometheus_client answers whatever path is asked for."""
    ingest = IngestSettings(topics=(TopicSettings(name="logs"),)).with_own_topics()
    login = Login(login_settings("https://id.example.org"))
    tables: dict[str, Sequence[BaseRoute]] = {
        "catalog": catalog_app(CatalogSettings(warehouse="file:///nowhere")).routes,
        "query": query_app(QuerySettings()).routes,
        "ingest-serve": serve_app(Tools.open(ingest)).routes,
        "ingest-node": node_app(LocalEngine(ingest), ingest).routes,
        "ui": [*login.routes(), *create_streamlit_routes(MagicMock())],
    }
    return {
        plain((service, method, path))
        for service, routes in tables.items()
        for method, path in _methods(routes)
    }


def _methods(routes: Sequence[BaseRoute]) -> Iterator[tuple[str, str]]:
    for route in iter_route_contexts(routes):
        original: Any = route.original_route
        if isinstance(original, Mount):  # the front end's own files, from the root on
            yield "GET", original.path or "/"
        elif isinstance(original, WebSocketRoute):
            yield "WEBSOCKET", original.path
        else:
            yield from ((method, cast("str", route.path)) for method in route.methods or ())
