"""`python -m catalog`: serve the catalog, and look after its database."""

import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import structlog
import typer
import uvicorn

from catalog.app import create_app
from catalog.database import Database, migrate
from lake.errors import FirnError, PrerequisiteError, SettingsError
from lake.logs import configure_logs
from lake.settings import CatalogSettings

log = structlog.get_logger()
cli = typer.Typer(help="The Iceberg REST catalog.", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)

DatabaseUrl = Annotated[str | None, typer.Option(help="SQLAlchemy URL: sqlite:///path or postgresql+psycopg://user@host/name")]
Warehouse = Annotated[str | None, typer.Option(help="URI below which tables live: file:///path or s3://bucket/prefix")]


@cli.command()
def serve(
    database_url: DatabaseUrl = None,
    warehouse: Warehouse = None,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on; 0: any free one")] = None,
    anonymous: Annotated[bool | None, typer.Option("--anonymous", help="let callers in without a key; loopback only")] = None,
    port_file: Annotated[Path | None, typer.Option(help="file that gets the port once the server listens")] = None,
) -> None:
    """Serve the catalog until it is stopped; the schema is migrated first."""
    settings = CatalogSettings.load(database_url=database_url, warehouse=warehouse, host=host, port=port, anonymous=anonymous)
    check_access(settings)
    database = Database(settings.database_url)
    before, now = migrate(database)
    database.close()
    if before != now:
        log.info("catalog.migrated", before=before, now=now)
    listener = _listen(settings)
    actual = listener.getsockname()[1]
    config = uvicorn.Config(
        create_app(settings), http="httptools", loop="uvloop", log_config=None, access_log=False, timeout_keep_alive=75, timeout_graceful_shutdown=30
    )
    log.info("catalog.listening", host=settings.host, port=actual, warehouse=settings.warehouse)
    if port_file is not None:
        temporary = port_file.with_name(f".{port_file.name}.{os.getpid()}")
        temporary.write_text(f"{actual}\n")
        temporary.rename(port_file)
    uvicorn.Server(config).run(sockets=[listener])


def check_access(settings: CatalogSettings) -> None:
    """Nobody gets in without a key, except on this machine where that was asked for. Raises SettingsError."""
    if settings.anonymous:
        if not is_loopback(settings.host):
            raise SettingsError(f"--anonymous is refused on {settings.host}: it is not a loopback address; listen on 127.0.0.1 or create keys")
        return
    raise SettingsError("the catalog has no keys yet; start it with --anonymous on 127.0.0.1")


def is_loopback(host: str) -> bool:
    """Whether an address reaches this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(settings: CatalogSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(1_024)
    except OSError as error:
        listener.close()
        raise PrerequisiteError(f"cannot listen on {settings.host}:{settings.port} ({error.strerror}); choose another --port or stop what uses it") from error
    return listener


@cli.command("migrate")
def migrate_command(database_url: DatabaseUrl = None) -> None:
    """Bring the database to this program's schema version."""
    settings = CatalogSettings.load(database_url=database_url)
    before, now = migrate(Database(settings.database_url))
    typer.echo(f"schema version {now}" if before == now else f"schema version {before} -> {now}")


def main() -> None:
    """Runs a verb; an expected problem is one sentence and exit code 2."""
    configure_logs("catalog")
    try:
        cli()
    except FirnError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
