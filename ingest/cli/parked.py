"""`python -m ingest parked list | replay | erase` and `python -m ingest resolve`."""

import json
import sys
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ingest.commit.checkpoint import resolve_all
from ingest.kafka.aside import Aside
from ingest.kafka.kafka_reader import KafkaReader
from ingest.kafka.topic_mac import check_keys
from ingest.model.parked_record import ACCEPT, REREAD, ParkedRecord, table_id
from ingest.model.trouble import Cause
from ingest.parking.parked_erasure import erase_parked
from ingest.parking.parked_topic import PARKED_FOLDER
from ingest.parking.resolve import Resolver
from lake.catalog_client import CatalogClient, TableName
from lake.clock import SystemClock
from lake.errors import NotFoundError, SettingsError
from lake.lease import control_of
from lake.settings import IngestSettings
from lake.storage import open_storage
from lake.tenant import TableId
from lake.terminal import TerminalConsole

app = typer.Typer(help="Tables that take no rows for now, and whose records wait.", no_args_is_help=True)

# What `list` says to do, in the words of docs/ingest.md.
_DECIDE = "python -m ingest resolve {table} --reread | --accept"
ADVICE = {
    Cause.ROLLED_BACK: _DECIDE,
    Cause.PARKING_LOST: _DECIDE,
    Cause.RESOLVED: "nothing: a running node goes on with it",
    Cause.DELETED: "undo the drop; once it is purged, a new table takes the records",
    Cause.COLUMNS: "change its columns back; then it is tried again by itself",
    Cause.METADATA: "mend what cannot be read; then it is tried again by itself",
    Cause.REFUSED: "see what the catalog says; it is tried again by itself",
    Cause.STORAGE: "mend what cannot be read or written; then it is tried again by itself",
    Cause.SLOW: "see the node's log; it is tried again by itself",
    Cause.FAILING: "see the node's log; it is tried again by itself",
    Cause.DISK_FULL: "free space on the disk; then it is tried again by itself",
    Cause.REGISTRY: "have the schema registry answer; then it is tried again by itself",
}

Parked = Annotated[str, typer.Argument(help="the table as the list shows it: namespace.name")]


@app.command("list")
def list_parked(as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Lists parked tables: since when, why, and what to do."""
    records = _resolver().parked()
    if as_json:
        for record in records:
            sys.stdout.write(json.dumps(_to_json(record)) + "\n")
        return
    table = Table("table", "since", "reason", "what is known", "what to do")
    for record in records:
        advice = Text(ADVICE[record.cause].format(table=record.table))
        table.add_row(
            str(record.table), record.since or "-", record.cause.value, Text(record.sentence), advice
        )
    TerminalConsole().print(table if records else "no table is parked")


@app.command()
def replay(table: Parked) -> None:
    """Tries a parked table again at once; its records go into it if it takes them."""
    _resolver().replay(_table(table))
    TerminalConsole().print(
        Text(f"the node tries {table} within seconds; `python -m ingest parked list` shows what became of it")
    )


@app.command()
def erase(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would go, change nothing")] = False,
) -> None:
    """Deletes from the parking topic, for good, what no table waits for any more and is older than an
    hour."""
    resolver, settings = _resolver(), IngestSettings.load()
    if (warehouse := resolver.catalog.warehouse) is None:
        raise SettingsError(
            "the catalog names no warehouse, so what parked messages keep there cannot be told from other "
            "files; set it at the catalog"
        )
    check_keys(settings)
    aside, now = Aside.of(open_storage(), warehouse, PARKED_FOLDER), SystemClock().now()
    done = erase_parked(settings, KafkaReader(settings), aside, resolver.parked(), now, dry_run=dry_run)
    TerminalConsole().print(
        Text(
            f"{'would be ' if dry_run else ''}erased: {done.messages:,} messages that no table waits for, "
            f"{done.bodies:,} objects"
        )
    )


def resolve(
    table: Annotated[
        str | None, typer.Argument(help="the table as the list shows it: namespace.name")
    ] = None,
    reread: Annotated[
        bool, typer.Option("--reread", help="read again from the input topics what was taken away")
    ] = False,
    accept: Annotated[bool, typer.Option("--accept", help="what was taken away stays away")] = False,
    all_tables: Annotated[
        bool,
        typer.Option(
            "--all", help="after the catalog's database was restored: all tables at once, while no node runs"
        ),
    ] = False,
) -> None:
    """Says how a table that was moved back goes on: with the rows that were taken away read again, or without
    them."""
    if reread == accept:
        raise SettingsError(
            "say how: --reread to read again what was taken away, or --accept to go on without it"
        )
    if (table is None) != all_tables:
        raise SettingsError("say which: a table as `python -m ingest parked list` shows it, or --all")
    how, resolver = REREAD if reread else ACCEPT, _resolver()
    if table is None:
        if reread:
            resolver.reread_parked()
        partitions = resolve_all(resolver.settings, resolver.control, how)
        TerminalConsole().print(
            Text(
                f"done: {partitions} partitions are read "
                f"{'from their starts' if reread else 'from where the group stands'} when a node starts"
            )
        )
    else:
        marks = resolver.resolve(_table(table), how)
        TerminalConsole().print(
            Text(f"done: {table} goes on from {marks.to_property()}; its parked records follow")
        )


def _resolver() -> Resolver:
    settings = IngestSettings.load().with_own_topics()
    token = settings.catalog.token
    catalog = CatalogClient(settings.catalog.uri, token=token.get_secret_value() if token else None)
    control = control_of(settings, catalog)
    if control is None:
        raise SettingsError(
            "this catalog keeps no parked records, and control.uri names no control service; without one "
            "nothing is ever parked"
        )
    return Resolver(settings, catalog, control, open_storage(), SystemClock())


def _table(text: str) -> TableId:
    namespace, _, name = text.rpartition(".")
    found = table_id(TableName(namespace, name)) if namespace else None
    if found is None:
        raise NotFoundError(
            f"{text!r} is no table of a tenant; write namespace.name as `python -m ingest parked list` shows "
            "it"
        )
    return found


def _to_json(record: ParkedRecord) -> dict[str, object]:
    return {
        "table": str(record.table),
        "reason": record.cause.value,
        "since": record.since,
        "sentence": record.sentence,
        "resolution": record.resolution,
        "awaits_person": record.awaits_person,
    }
