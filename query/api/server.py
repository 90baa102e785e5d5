"""The API as a process."""

import structlog

from lake.http_server import bounded_server
from lake.settings import QuerySettings
from query.access.access import Access, check_host
from query.api.app import create_app

log = structlog.get_logger()
SHUTDOWN_S = 10


def serve_until_stopped(settings: QuerySettings) -> None:
    """Serves until SIGTERM. Raises SettingsError where anybody could get in from outside without a key."""
    check_host(settings.http.host, Access(settings))
    log.info(
        "query.listening",
        host=settings.http.host,
        port=settings.http.port,
        catalog=settings.catalog.uri,
        trino=settings.trino.uri,
    )
    bounded_server(
        create_app(settings),
        settings.http,
        shutdown_s=SHUTDOWN_S,
        host=settings.http.host,
        port=settings.http.port,
    ).run()
