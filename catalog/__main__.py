"""`python -m catalog`: serve the catalog, and look after its database."""

import gc
import os
import socket
import ssl
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from catalog import key_commands
from catalog.access.access import any_key
from catalog.extras.soft_delete import undo_drop
from catalog.http.app import create_app
from catalog.http.routes.tenants import tenants_page
from catalog.http.workers import count_together, run_workers
from catalog.model.identifier import Identifier, parse_name, parse_namespace
from catalog.open_database import DatabaseUrl, open_database
from catalog.recovery.check import check
from catalog.recovery.rebuild import rebuild, refuse_lost
from catalog.store import name_journal, namespaces
from catalog.store.database import Database, migrate
from catalog.store.metadata_store import MetadataStore
from lake.clock import SystemClock, epoch_ms
from lake.command_line import run_program
from lake.confusable import warnings_of
from lake.errors import SettingsError
from lake.http_server import bounded_server
from lake.listening import check_exposure, is_loopback, listen
from lake.logs import configure_logs
from lake.settings import CatalogSettings
from lake.storage import open_storage
from lake.terminal import json_text, visible

log = structlog.get_logger()
GC_CONTAINERS = 50_000
SHUTDOWN_S = 30
cli = typer.Typer(
    help="The Iceberg REST catalog.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
Warehouse = Annotated[
    str | None, typer.Option(help="URI below which tables live: file:///path or s3://bucket/prefix")
]


@cli.command()
def serve(
    database_url: DatabaseUrl = None,
    warehouse: Warehouse = None,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on; 0: any free one")] = None,
    anonymous: Annotated[
        bool | None, typer.Option("--anonymous", help="let callers in without a key; loopback only")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="processes that serve; more than one needs PostgreSQL")
    ] = None,
    control: Annotated[
        bool | None,
        typer.Option("--control", help="serve only leases, parked records and tasks, beside another catalog"),
    ] = None,
    port_file: Annotated[
        Path | None, typer.Option(help="file that gets the port once the server listens")
    ] = None,
) -> None:
    """Serve the catalog until it is stopped; the schema is migrated first."""
    settings = CatalogSettings.load(
        database_url=database_url,
        warehouse=warehouse,
        http__host=host,
        http__port=port,
        access__anonymous=anonymous,
        workers=workers,
        control=control,
    )
    if not settings.warehouse and not settings.control:
        raise SettingsError("no warehouse is set; give --warehouse file:///path or s3://bucket/prefix")
    if settings.workers > 1:
        count_together()
    _make_ready(settings)
    listener = listen(settings.http.host, settings.http.port)
    actual = listener.getsockname()[1]
    log.info("catalog.listening", host=settings.http.host, port=actual, warehouse=settings.warehouse)
    if port_file is not None:
        _tell_port(port_file, actual)
    run_workers(settings.workers, lambda: _serve(settings, listener))


def _make_ready(settings: CatalogSettings) -> None:
    """Brings the database to this version's schema, and refuses what nobody may serve."""
    database = Database(settings.database_url.get_secret_value())
    if database.is_sqlite and settings.workers > 1:
        raise SettingsError("SQLite is for one process; use --workers 1 or PostgreSQL")
    before, now = migrate(database)
    if before != now:
        log.info("catalog.migrated", before=before, now=now)
    if settings.warehouse:
        refuse_lost(database, _store(settings), _now_ms())
    check_access(settings, database)
    database.close()


def _tell_port(port_file: Path, port: int) -> None:
    """Whoever waits for the file finds it whole."""
    temporary = port_file.with_name(f".{port_file.name}.{os.getpid()}")
    temporary.write_text(f"{port}\n")
    temporary.rename(port_file)


def _serve(settings: CatalogSettings, listener: socket.socket) -> None:
    app = create_app(settings)
    # A batch of a thousand commits makes some hundred thousand containers, none of them in a cycle; looking
    # for cycles cost 8 % of the CPU.
    gc.freeze()
    gc.set_threshold(GC_CONTAINERS)
    server = bounded_server(
        app,
        settings.http,
        shutdown_s=SHUTDOWN_S,
        loop="uvloop",
        proxy_headers=False,
        timeout_keep_alive=75,
        ssl_certfile=settings.tls.certificate,
        ssl_keyfile=settings.tls.key,
        ssl_ca_certs=settings.tls.client_ca,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls.client_ca else ssl.CERT_NONE,
    )
    server.run(sockets=[listener])


def check_access(settings: CatalogSettings, database: Database) -> None:
    """Nobody gets in without a key, except on this machine where that was asked for. Raises SettingsError."""
    check_exposure(
        settings.http.host,
        is_open=lambda: settings.access.anonymous,
        refusal=(
            f"--anonymous is refused on {settings.http.host}: it is not a loopback address; listen on "
            "127.0.0.1 or create keys"
        ),
    )
    if settings.access.anonymous:
        if settings.oidc.issuer:
            raise SettingsError(
                "access.anonymous lets everybody do everything, whatever oidc says; leave out one of them"
            )
        return
    with database.read() as connection:
        if not settings.oidc.issuer and not any_key(connection, _now_ms()):
            raise SettingsError(
                "the catalog has no API keys; make one with `python -m catalog key create --scope admin`, or "
                "start with --anonymous on 127.0.0.1"
            )
    if not is_loopback(settings.http.host) and settings.tls.certificate is None:
        log.warning(
            "catalog.no_tls",
            host=settings.http.host,
            advice=(
                "keys cross the network readable; set tls.certificate and tls.key, or put a TLS proxy in "
                "front"
            ),
        )


@cli.command("migrate")
def migrate_command(database_url: DatabaseUrl = None) -> None:
    """Bring the database to this program's schema version."""
    settings = CatalogSettings.load(database_url=database_url)
    before, now = migrate(Database(settings.database_url.get_secret_value()))
    typer.echo(f"schema version {now}" if before == now else f"schema version {before} -> {now}")


tenant_cli = typer.Typer(help="Tenants.", no_args_is_help=True)
table_cli = typer.Typer(help="Tables.", no_args_is_help=True)
cli.add_typer(key_commands.cli, name="key")
cli.add_typer(tenant_cli, name="tenant")
cli.add_typer(table_cli, name="table")


def _store(settings: CatalogSettings) -> MetadataStore:
    if not settings.warehouse:
        raise SettingsError("no warehouse is set; give --warehouse file:///path or s3://bucket/prefix")
    return MetadataStore(
        open_storage(),
        settings.warehouse,
        allowed_locations=settings.allowed_locations,
        cache_bytes_max=settings.metadata_cache_bytes_max,
    )


def _now_ms() -> int:
    return epoch_ms(SystemClock().now())


@tenant_cli.command("list")
def tenant_list(database_url: DatabaseUrl = None) -> None:
    """List the tenants with their number of tables and what may be mistaken about their names, one JSON
    object a line."""
    database, _ = open_database(database_url)
    after, found = "", list[dict[str, Any]]()
    with database.read() as connection:
        while paths := namespaces.children(connection, "", after=after, limit=1_000):
            found += tenants_page(connection, after, 1_000)[0]
            after = paths[-1]
    warnings = warnings_of(str(tenant["tenant"]) for tenant in found)
    for tenant in found:
        typer.echo(json_text({**tenant, "warnings": list(warnings.get(str(tenant["tenant"]), ()))}))


@table_cli.command("undo")
def table_undo(
    table: Annotated[str, typer.Argument(help="namespace.table, as it was called")],
    new_name: Annotated[
        str | None, typer.Option("--as", help="namespace.table, where the old name is taken")
    ] = None,
    database_url: DatabaseUrl = None,
    warehouse: Warehouse = None,
) -> None:
    """Bring back a table that was dropped; the last one of that name."""
    database, settings = open_database(database_url, warehouse)
    with database.write() as connection:
        target = undo_drop(
            connection,
            database,
            identifier=_identifier(table),
            dropped_id=None,
            new_name=None if new_name is None else _identifier(new_name),
        )
        name_journal.note_living(connection, target)
    name_journal.flush(database, _store(settings), _now_ms())
    typer.echo(visible(f"{target} is back"))


def _identifier(text: str) -> Identifier:
    *parts, name = text.split(".")
    return Identifier(parse_namespace(parts), parse_name(name, "the table's name"))


@cli.command("check")
def check_command(database_url: DatabaseUrl = None, warehouse: Warehouse = None) -> None:
    """Compare the database with the storage; prints what is wrong, exit code 1 where anything is."""
    database, settings = open_database(database_url, warehouse)
    problems = 0
    for sentence in check(database, _store(settings)):
        problems += 1
        typer.echo(visible(sentence))
    typer.echo(f"{problems} problems")
    raise typer.Exit(1 if problems else 0)


@cli.command("rebuild")
def rebuild_command(
    from_warehouse: Annotated[
        bool,
        typer.Option(
            "--from-warehouse", help="say that you mean it: the warehouse is right, the database follows"
        ),
    ] = False,
    database_url: DatabaseUrl = None,
    warehouse: Warehouse = None,
) -> None:
    """Bring a lost or old database to what the warehouse holds. Stop the servers first."""
    if not from_warehouse:
        raise SettingsError(
            "rebuild changes the database to what the warehouse holds; stop the servers, then run it with "
            "--from-warehouse"
        )
    database, settings = open_database(database_url, warehouse)
    typer.echo(json_text(asdict(rebuild(database, _store(settings), _now_ms()))))


if __name__ == "__main__":
    configure_logs("catalog")
    run_program(cli)
