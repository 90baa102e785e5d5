"""`python -m catalog key`: make, list, rotate and revoke API keys, on the database itself."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from catalog.access import key_lifetime, keys
from catalog.access.key_lifetime import Listed, day, state_of
from catalog.access.keys import Narrowing
from catalog.access.verbs import Scope, Verb
from catalog.model.identifier import parse_namespace
from catalog.open_database import DatabaseUrl, open_database
from lake.clock import SystemClock, epoch_ms
from lake.terminal import json_text, visible

cli = typer.Typer(help="API keys.", no_args_is_help=True)
HEADINGS = ("ID", "NOTE", "SCOPE", "BOUND TO", "STREAMS", "VERBS", "CREATED", "EXPIRES", "LAST USED", "STATE")
Expires = Annotated[
    str | None,
    typer.Option(
        help=(
            "when it ends: 90d, 12h, 2027-01-31, never; without it access.bound_key_lifetime_s for bound "
            "keys, never for others"
        )
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace", help="bind a read or write key to this namespace; levels joined by dots; repeatable"
    ),
]
Streams = Annotated[
    list[str] | None,
    typer.Option(
        "--stream", help="of its namespaces only this stream, or those of a pattern like 'web*'; repeatable"
    ),
]
Verbs = Annotated[
    list[Verb] | None, typer.Option("--verb", help="only this of what its scope allows; repeatable")
]


@cli.command("create")
def create(
    scope: Annotated[Scope, typer.Option(help="what the key is for")],
    namespace: Names = None,
    stream: Streams = None,
    verb: Verbs = None,
    note: Annotated[str, typer.Option(help="whose it is")] = "",
    expires: Expires = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make an API key. It is shown now and never again."""
    database, settings = open_database(database_url)
    narrowing = Narrowing(
        tuple(parse_namespace(each.split(".")) for each in namespace or ()),
        tuple(stream) if stream else None,
        frozenset(verb) if verb else None,
    )
    now_ms, default_s = _now_ms(), settings.access.bound_key_lifetime_s if narrowing.namespaces else 0
    expires_ms = key_lifetime.end_of(expires, now_ms, default_s=default_s)
    with database.write() as connection:
        typer.echo(keys.create_key(connection, scope, None, note, now_ms, expires_ms, narrowing=narrowing))
    if expires_ms is not None:
        typer.echo(f"it expires on {day(expires_ms)}", err=True)


@cli.command("list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
    unused_for: Annotated[
        str | None, typer.Option(help="only keys in force that nobody has used for so long, as 90d")
    ] = None,
    expiring_within: Annotated[
        str | None, typer.Option(help="only keys in force that will have ended by then, as 14d")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """List the API keys without their secrets; on stderr those that never expire, or soon do."""
    database, _ = open_database(database_url)
    with database.read() as connection:
        found: Sequence[Listed] = keys.list_keys(connection)
    now_ms = _now_ms()
    if unused_for is not None:
        span_ms = key_lifetime.span_of(unused_for)
        found = [key for key in found if key_lifetime.unused_for(key, now_ms, span_ms)]
    if expiring_within is not None:
        span_ms = key_lifetime.span_of(expiring_within)
        found = [key for key in found if key_lifetime.expires_within(key, now_ms, span_ms)]
    lines = (json_text({**key, "state": state_of(key, now_ms)}) for key in found)
    for line in lines if as_json else _table(found, now_ms):
        typer.echo(line)
    for sentence in key_lifetime.warnings(found, now_ms):
        typer.echo(f"warning: {sentence}", err=True)


@cli.command("rotate")
def rotate(
    key_id: str,
    overlap: Annotated[
        str, typer.Option(help="how long the former secret stays in force, as 24h; 0: not at all")
    ] = key_lifetime.OVERLAP,
    expires: Annotated[
        str | None, typer.Option(help="the key's new end, as 90d, or never; without it as it was")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Give an API key another secret. It is shown now and never again; id, bounds and scope stay."""
    database, _ = open_database(database_url)
    now_ms, overlap_ms = _now_ms(), key_lifetime.overlap_of(overlap)
    new_end = None if expires is None else (key_lifetime.end_of(expires, now_ms, default_s=0),)
    with database.write() as connection:
        typer.echo(keys.rotate_key(connection, key_id, now_ms, overlap_ms, new_end))
    until = (
        f"is in force until {day(now_ms + overlap_ms)}" if overlap_ms else "is refused within five seconds"
    )
    typer.echo(f"the former secret {until}", err=True)


@cli.command("revoke")
def revoke(key_id: str, database_url: DatabaseUrl = None) -> None:
    """End an API key, its former secret too; running servers refuse it within five seconds."""
    database, _ = open_database(database_url)
    with database.write() as connection:
        keys.revoke_key(connection, key_id, _now_ms())


def _now_ms() -> int:
    return epoch_ms(SystemClock().now())


def _table(found: Sequence[Listed], now_ms: int) -> Iterator[str]:
    """Lines of columns as wide as what is in them."""
    rows = [HEADINGS, *(_row(key, now_ms) for key in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(key: Listed, now_ms: int) -> tuple[str, ...]:
    state = state_of(key, now_ms)
    if state is key_lifetime.State.OVERLAP:
        state_text = f"{state}, the former until {day(key['former-secret-until-ms'])}"
    else:
        state_text = str(state)
    cells = (
        key["id"],
        key["note"] or "-",
        key["scope"],
        keys.bound_to(key) or "all",
        _all_or(key["streams"]),
        _all_or(key["verbs"]),
        day(key["created-ms"]),
        _day_or(key["expires-ms"]),
        _day_or(key["last-used-ms"]),
        state_text,
    )
    return tuple(map(visible, cells))


def _all_or(values: Sequence[Any] | None) -> str:
    return "all" if values is None else ", ".join(map(str, values))


def _day_or(time_ms: int | None) -> str:
    return "never" if time_ms is None else day(time_ms)
