"""The API as a process."""

import structlog
import uvicorn

from lake.settings import QuerySettings
from query.access import Access, check_host
from query.api.app import create_app

log = structlog.get_logger()
SHUTDOWN_S = 10


def serve_until_stopped(settings: QuerySettings) -> None:
    """Serves until SIGTERM. Raises SettingsError where anybody could get in from outside without a key."""
    check_host(settings.host, Access(settings))
    log.info("query.listening", host=settings.host, port=settings.port, catalog=settings.catalog_uri, trino=settings.trino_uri)
    uvicorn.run(create_app(settings), host=settings.host, port=settings.port, log_config=None, access_log=False, timeout_graceful_shutdown=SHUTDOWN_S)
