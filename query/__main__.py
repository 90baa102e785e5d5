"""`python -m query`: serve the search API, and use it from a terminal."""

from pathlib import Path
from typing import Annotated

import typer

from lake.command_line import run_program
from lake.logs import configure_logs
from lake.settings import QuerySettings
from query.cli import audit, boards, command_line, keeping, limits, rules

cli = typer.Typer(
    help="Search: words to rows, over HTTP.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (
    command_line.search,
    command_line.tail,
    command_line.export,
    command_line.sql,
    keeping.retention,
    limits.limits,
    limits.usage,
):
    cli.command()(command)
cli.add_typer(keeping.hold_cli, name="hold")
cli.add_typer(keeping.stream_cli, name="stream")
cli.add_typer(keeping.tenant_cli, name="tenant")
cli.add_typer(audit.audit_cli, name="audit")
cli.add_typer(rules.rules_cli, name="rules")
cli.add_typer(boards.boards_cli, name="boards")


@cli.callback()
def settings_help() -> None:
    """Settings come from firn.toml (section [query]) and FIRN_QUERY_* variables; FIRN_QUERY_CLIENT__URI and
    FIRN_QUERY_CLIENT__KEY say which API is asked."""


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on")] = None,
    catalog_uri: Annotated[str | None, typer.Option(help="base URL of the REST catalog")] = None,
    trino_uri: Annotated[str | None, typer.Option(help="base URL of the Trino coordinator")] = None,
    ingest_uri: Annotated[str | None, typer.Option(help="base URL of `ingest serve`")] = None,
) -> None:
    """Serve the API until it is stopped."""
    from query.api.server import (
        serve_until_stopped,
    )  # the engines take most of a second to import, and a search from the terminal needs none

    serve_until_stopped(
        QuerySettings.load(
            http__host=host,
            http__port=port,
            catalog__uri=catalog_uri,
            trino__uri=trino_uri,
            ingest__uri=ingest_uri,
        )
    )


@cli.command("trino-access")
def trino_access(
    folder: Annotated[Path, typer.Argument(help="folder of the files: rules.json and password.db")],
    renew: Annotated[
        list[str] | None, typer.Option(help="user whose password is made anew, repeatable")
    ] = None,
) -> None:
    """Write Trino's access rules and password file for all tenants; new passwords are printed once, user and
    password a line."""
    from query.access.trino_access import write_access_of  # as above

    for user in write_access_of(QuerySettings.load(), folder, renew or ()):
        typer.echo(f"{user.name}\t{user.password}")


if __name__ == "__main__":
    configure_logs("query")
    run_program(cli)
