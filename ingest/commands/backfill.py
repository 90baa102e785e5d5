"""`python -m ingest backfill files`."""

import json
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal
from uuid import uuid4

import typer
from rich.console import Console
from rich.text import Text

from ingest.archive import ArchiveFile, find_files
from ingest.backfill import Backfill, Columns
from ingest.backfill_ledger import BackfillLedger
from ingest.backfill_report import BackfillReport
from ingest.committer import Committer
from ingest.dead_letter import DeadLetters
from ingest.dead_letters import known_stream, known_tenant
from ingest.flush_writer import FlushWriter
from ingest.kafka_reader import KafkaReader
from ingest.lease import TTL_S, NodeLease, control_of, lease_name
from ingest.parked_record import ParkedRecords
from ingest.rejects import OnceLetters, RejectsFile, in_topic
from ingest.table_states import NewTables, TableStates
from ingest.writer import write_many_hours
from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.errors import RefusedError, SettingsError
from lake.logs import configure_logs
from lake.settings import IngestSettings, TopicSettings
from lake.storage import open_storage

LOAD_TIMEOUT_S = 5.0
THREADS = 8
LEASE_WAIT_S = TTL_S + 4.0
Form = Literal["auto", "json", "text", "otlp_proto"]

app = typer.Typer(help="Old records into the tables, once, beside a running ingester.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """A run that was interrupted is run again: it goes on where it stands, and adds nothing that is there already."""


@app.command()
def files(
    patterns: Annotated[list[str], typer.Argument(help="files: paths, file:/// or s3:// URIs, with *, ?, [...] and ** (any folders), quoted")],
    tenant: Annotated[str | None, typer.Option(help="tenant that the records go to")] = None,
    tenant_field: Annotated[str | None, typer.Option(help="field of the records that names the tenant")] = None,
    tenant_path: Annotated[str | None, typer.Option(help="regular expression over whole URIs, whose first group is the tenant")] = None,
    stream: Annotated[str | None, typer.Option(help="stream that the records go to; without any, logs")] = None,
    stream_field: Annotated[str | None, typer.Option(help="field of the records that names the stream")] = None,
    stream_path: Annotated[str | None, typer.Option(help="regular expression over whole URIs, whose first group is the stream")] = None,
    record_format: Annotated[Form, typer.Option("--format", help="how a record is read, as the setting of a topic; Parquet rows are JSON")] = "auto",
    time_zone: Annotated[str, typer.Option(help="zone of times that name none: an IANA name")] = "UTC",
    rejects: Annotated[Path | None, typer.Option(help="file for records that cannot be stored; without it they go to the dead-letter topic")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as one JSON object")] = False,
) -> None:
    """Reads files of NDJSON, text lines or Parquet, plain or compressed (gzip, zstd), into tables. Every file only once, as long as it stays as it is."""
    configure_logs("ingest")
    settings = IngestSettings.load().model_copy(update={"late_limit": "accept"})  # records of an archive are old
    tenants = _rules("tenant", None if tenant is None else known_tenant(tenant).name, tenant_field, tenant_path)
    streams = _rules("stream", None if stream is None else known_stream(stream), stream_field, stream_path)
    if not tenants:
        raise SettingsError("say whose records these are: --tenant NAME, --tenant-field FIELD or --tenant-path REGEX")
    topic = _topic(record_format, time_zone, tenants, streams)
    _check_place_of_rejects(settings, rejects)
    storage = open_storage()
    found = find_files(patterns, storage)
    console = Console(stderr=True)
    report = BackfillReport(len(found), lambda text: console.print(Text(text)))
    with _opened(settings, topic, found, rejects, report) as backfill:
        backfill.run(found)
    if as_json:
        sys.stdout.write(json.dumps(report.to_json()) + "\n")
    else:
        Console().print(report.to_renderable())
    if report.failed:
        raise typer.Exit(1)


def _rules(what: str, name: str | None, field: str | None, path: str | None) -> tuple[str, ...]:
    """One of the three as a rule of a topic; none where none is given. A name is given as it is, so it is no regular expression."""
    given = [f"{kind}:{text}" for kind, text in (("const", name), ("field", field), ("topic", path)) if text is not None]
    if len(given) > 1:
        raise SettingsError(f"the {what} comes from one place: --{what}, --{what}-field or --{what}-path")
    if path is not None:
        try:
            groups = re.compile(path).groups
        except re.error as error:
            raise SettingsError(f"--{what}-path {path!r} is no regular expression ({error})") from error
        if not groups:
            raise SettingsError(f"--{what}-path {path!r} has no group; put the part of the path that is the {what} into parentheses")
    return tuple(given)


def _topic(record_format: Form, time_zone: str, tenants: tuple[str, ...], streams: tuple[str, ...]) -> TopicSettings:
    try:
        return TopicSettings(name="backfill", format=record_format, time_zone=time_zone, tenant=tenants, stream=streams)
    except ValueError as error:
        raise SettingsError(f"--time-zone {time_zone!r} is no time zone; use a name like UTC or Europe/Berlin") from error


def _check_place_of_rejects(settings: IngestSettings, rejects: Path | None) -> None:
    if rejects is None and "bootstrap_servers" not in settings.model_fields_set:
        raise SettingsError(
            "records that cannot be stored need a place: give --rejects FILE, or, for the dead-letter topic, "
            "set bootstrap_servers (FIRN_INGEST_BOOTSTRAP_SERVERS)"
        )


@contextmanager
def _opened(settings: IngestSettings, topic: TopicSettings, found: list[ArchiveFile], rejects: Path | None, report: BackfillReport) -> Iterator[Backfill]:
    """A backfill with all it needs; at the end its counts are in the report."""
    token = settings.catalog_token
    catalog = CatalogClient(settings.catalog_uri, token=token.get_secret_value() if token else None)
    storage, clock, ledger = open_storage(), SystemClock(), BackfillLedger()
    warehouse = settings.warehouse or catalog.warehouse
    if not warehouse:
        raise SettingsError("the catalog does not say where tables go; set FIRN_INGEST_WAREHOUSE to a location like s3://bucket/prefix")
    letters = _letters(settings, warehouse, found, rejects)
    control = control_of(settings, catalog)
    records = None if control is None else ParkedRecords(control, timeout_s=settings.commit_timeout_s)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="backfill") as pool, _lease(settings, control, topic, found) as lease:
        new_tables = NewTables(settings.new_tables_per_minute, clock)
        states = TableStates(catalog, storage, warehouse, records, pool, clock, LOAD_TIMEOUT_S, new_tables, lease.name_and_token, ledger)
        committer = Committer(states, pool, clock, settings.commit_timeout_s, settings.on_deleted, f"backfill-{uuid4().hex}")
        writer = FlushWriter(settings, Columns(states), letters, storage, write_many_hours)
        try:
            yield Backfill(settings, topic, storage, states, committer, ledger, writer, report, lease.check)
        finally:
            report.dead_letters, report.dead_letters_before = letters.sent, letters.there_already


def _letters(settings: IngestSettings, warehouse: str, found: list[ArchiveFile], rejects: Path | None) -> OnceLetters:
    sources = [file.source for file in found]
    if rejects is not None:
        file = RejectsFile(rejects)
        return OnceLetters(file, file.known, sources)
    topic = DeadLetters(settings, open_storage(), warehouse)
    topic.ensure_topic()
    return OnceLetters(topic, lambda: in_topic(KafkaReader(settings), settings.dead_letter_topic), sources)


@contextmanager
def _lease(settings: IngestSettings, control: CatalogClient | None, topic: TopicSettings, found: list[ArchiveFile]) -> Iterator[NodeLease]:
    """A lease of its own, so that nodes go on, other backfills too, and only the same one does not run twice at once.

    That of a run that was killed is waited for, some seconds. Raises RefusedError where it is held on.
    """
    about = sha256("\n".join([*topic.tenant, *topic.stream, *(file.uri for file in found)]).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    lease = NodeLease(control, settings, SystemClock(), f"{socket.gethostname()}:{os.getpid()}", f"{lease_name(settings)}.backfill.{about}")
    late = threading.Event()
    timer = threading.Timer(LEASE_WAIT_S, late.set)
    timer.start()
    try:
        if not lease.acquire(late):
            raise RefusedError("the same backfill runs already, in another process; wait for its end")
    finally:
        timer.cancel()
    try:
        yield lease
    finally:
        lease.release()
