"""The API as a process."""

import gc

import structlog

from lake.arrow_start import hide_pandas
from lake.http_server import bounded_server
from lake.settings import QuerySettings
from query.access.access import Access, check_host
from query.api.app import create_app

log = structlog.get_logger()
SHUTDOWN_S = 10
GC_CONTAINERS = 20_000


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
    hide_pandas()
    app = create_app(settings)
    # Whoever asks while the collector looks through all that was imported waits some 50 ms longer.
    gc.freeze()
    gc.set_threshold(GC_CONTAINERS)
    bounded_server(
        app,
        settings.http,
        shutdown_s=SHUTDOWN_S,
        host=settings.http.host,
        port=settings.http.port,
    ).run()
