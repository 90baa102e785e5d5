"""`python -m query`: serve the search API."""

import sys
from typing import Annotated

import structlog
import typer
import uvicorn

from lake.errors import FirnError
from lake.logs import configure_logs
from lake.settings import QuerySettings
from query.access import Access, check_host
from query.api.app import create_app

log = structlog.get_logger()
cli = typer.Typer(help="Search: words to rows, over HTTP.", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)


@cli.callback()
def settings_help() -> None:
    """Settings come from firn.toml (section [query]) and FIRN_QUERY_* variables."""


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on")] = None,
    catalog_uri: Annotated[str | None, typer.Option(help="base URL of the REST catalog")] = None,
    trino_uri: Annotated[str | None, typer.Option(help="base URL of the Trino coordinator")] = None,
    ingest_uri: Annotated[str | None, typer.Option(help="base URL of ingest's HTTP endpoint")] = None,
) -> None:
    """Serve the API until it is stopped."""
    settings = QuerySettings.load(host=host, port=port, catalog_uri=catalog_uri, trino_uri=trino_uri, ingest_uri=ingest_uri)
    if settings.host not in ("127.0.0.1", "::1", "localhost"):
        check_host(settings.host, Access(settings))
    log.info("query.listening", host=settings.host, port=settings.port, catalog=settings.catalog_uri, trino=settings.trino_uri)
    uvicorn.run(create_app(settings), host=settings.host, port=settings.port, log_config=None, access_log=False, timeout_graceful_shutdown=10)


def main() -> None:
    """Runs a verb; an expected problem is one sentence and exit code 2."""
    configure_logs("query")
    try:
        cli()
    except FirnError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
