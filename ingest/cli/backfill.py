"""`python -m ingest backfill files` and `backfill kafka`."""

import gc
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from rich.text import Text

from ingest.backfill.archive import find_files
from ingest.backfill.backfill import Backfill
from ingest.backfill.backfill_commits import BackfillCommits, Columns
from ingest.backfill.backfill_ledger import BackfillLedger
from ingest.backfill.backfill_offsets import ALL, Bound, Wanted, plan_ranges
from ingest.backfill.backfill_report import BackfillReport, FilesReport, TopicReport
from ingest.backfill.backfill_topic import TopicBackfill
from ingest.backfill.backfill_topic_ledger import TopicLedger
from ingest.backfill.dump import DumpRules, parse_as_of
from ingest.commit.committer import Committer
from ingest.commit.ledger import Ledger
from ingest.commit.table_states import NewTables, TableStates
from ingest.dead_letters.dead_letter import DeadLetters
from ingest.dead_letters.dead_letters import known_stream, known_tenant
from ingest.dead_letters.rejects import OnceLetters, RejectsFile, in_topic
from ingest.decode.formats.registry import AUTO, REPLAY
from ingest.kafka.kafka_reader import KafkaReader
from ingest.keys.key_index_store import KeyIndexStore
from ingest.model.parked_record import ParkedRecords
from ingest.route.routes import Routes
from ingest.write.catalog_retentions import CatalogRetentions
from ingest.write.flush_writer import FlushWriter
from ingest.write.writer import write_many_hours
from lake.catalog_client import CatalogClient
from lake.clock import SystemClock, epoch_ms
from lake.errors import RefusedError, SettingsError
from lake.lease import NODE_TIMES, Lease, control_of, lease_name
from lake.memory import Malloc, set_malloc
from lake.relief import Bounds
from lake.settings import (
    ChangeOrder,
    ChangeSettings,
    IngestSettings,
    RecordFormat,
    TopicMasking,
    TopicSettings,
)
from lake.storage import open_storage
from lake.tenant import SYSTEM_TENANT
from lake.terminal import TerminalConsole

LOAD_TIMEOUT_S = 5.0
THREADS = 8
# Arrays and their like die by their reference counts: looking for circles costs, and finds none.
COLLECT_OBJECTS = 100_000
# The system clears every page that it gives anew, which costs as much as to fill it: what is freed is kept
# for what is taken next.
KEPT_MEMORY = {Malloc.TRIM_THRESHOLD: 2**31 - 1, Malloc.MMAP_THRESHOLD: 2**30}
LEASE_WAIT_S = NODE_TIMES.ttl_s + 4.0

app = typer.Typer(help="Old records into the tables, once, beside a running ingester.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """A run that was interrupted is run again: it goes on where it stands, and adds nothing that is there
    already."""


@app.command()
def files(
    patterns: Annotated[
        list[str],
        typer.Argument(
            help="files: paths, file:/// or s3:// URIs, with *, ?, [...] and ** (any folders), quoted"
        ),
    ],
    tenant: Annotated[str | None, typer.Option(help="tenant that the records go to")] = None,
    tenant_field: Annotated[
        str | None, typer.Option(help="field of the records that names the tenant")
    ] = None,
    tenant_path: Annotated[
        str | None, typer.Option(help="regular expression over whole URIs, whose first group is the tenant")
    ] = None,
    stream: Annotated[
        str | None, typer.Option(help="stream that the records go to; without any, logs")
    ] = None,
    stream_field: Annotated[
        str | None, typer.Option(help="field of the records that names the stream")
    ] = None,
    stream_path: Annotated[
        str | None, typer.Option(help="regular expression over whole URIs, whose first group is the stream")
    ] = None,
    record_format: Annotated[
        RecordFormat,
        typer.Option(
            "--format", help="how a record is read, as the setting of a topic; Parquet rows are JSON"
        ),
    ] = AUTO,
    time_zone: Annotated[str, typer.Option(help="zone of times that name none: an IANA name")] = "UTC",
    key: Annotated[
        list[str] | None,
        typer.Option(help="the files are a dump of a table, and this field is its key; may be repeated"),
    ] = None,
    order_by: Annotated[
        ChangeOrder, typer.Option(help="what orders the changes of a table that the dump makes")
    ] = "offset",
    buckets: Annotated[int, typer.Option(help="parts of a table that the dump makes", min=1, max=4_096)] = 1,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="position or time of the source that the dump was taken at, for a table that orders"
        ),
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(
            help="file for records that cannot be stored; without it they go to the dead-letter topic"
        ),
    ] = None,
    masking_of: Annotated[
        str | None,
        typer.Option(
            help="mask the records by the rules of this input topic; '-': they are not to be masked"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as one JSON object")] = False,
) -> None:
    """Reads files of NDJSON, text lines or Parquet, plain or compressed (gzip, zstd), into tables. Every file
    only once, as long as it stays as it is."""
    settings = IngestSettings.load().changed(limits__late="accept")  # records of an archive are old
    tenants = _rules(
        "tenant", None if tenant is None else known_tenant(tenant).name, tenant_field, tenant_path
    )
    streams = _rules("stream", None if stream is None else known_stream(stream), stream_field, stream_path)
    if not tenants:
        raise SettingsError(
            "say whose records these are: --tenant NAME, --tenant-field FIELD or --tenant-path REGEX"
        )
    if f"const:{SYSTEM_TENANT.name}" in tenants:
        raise SettingsError(f"the tenant {SYSTEM_TENANT.name!r} is Firn's own; give the records to another")
    changes = _dumped(key or [], order_by, buckets, as_of)
    topic = _topic(record_format, time_zone, tenants, streams).model_copy(
        update={"changes": changes, "masking": _masking(settings, masking_of, record_format)}
    )
    _check_place_of_rejects(settings, rejects)
    storage = open_storage()
    found = find_files(patterns, storage)
    sources = [file.source for file in found]
    console = TerminalConsole(stderr=True)
    rules = DumpRules(changes, None if as_of is None else parse_as_of(as_of), sources)
    report = FilesReport(lambda text: console.print(Text(text)), files_total=len(found))
    ledger = BackfillLedger(rules.check)
    catalog, control = _catalog(settings)
    letters = (
        _dead_letters(settings, _warehouse(settings, catalog), sources)
        if rejects is None
        else _rejects(rejects, sources)
    )
    what = "\n".join([*topic.tenant, *topic.stream, *(file.uri for file in found)])
    with (
        _lease(settings, control, what) as lease,
        _commits(settings, catalog, control, lease, ledger, letters, report) as commits,
    ):
        Backfill(settings, topic, storage, commits, ledger, report, rules.as_of).run(found)
    _print(report, as_json)
    if report.failed:
        raise typer.Exit(1)


def _masking(settings: IngestSettings, of: str | None, form: RecordFormat) -> TopicMasking | None:
    """By which rules records of files are masked. Where any topic has some, files are not taken as they are
    because nobody thought of it."""
    known = {topic.name: topic.masking for topic in settings.topics if topic.masking is not None}
    if of is None and known:
        raise SettingsError(
            f"records of {', '.join(sorted(known))} are masked: say --masking-of TOPIC by whose rules these "
            "are, or --masking-of - to take them as they are"
        )
    if of in (None, "-"):
        return None
    if of not in known:
        raise SettingsError(f"--masking-of {of}: no input topic of that name has masking.rules")
    if form == "text" and (told := [rule.name for rule in known[of].rules if rule.fields]):
        raise SettingsError(
            f"rule {told[0]} of {of} names fields, and --format text says that there are none; leave it out"
        )
    return known[of]


def _dumped(key: list[str], order_by: ChangeOrder, buckets: int, as_of: str | None) -> ChangeSettings | None:
    """How rows of a dump are read; None for records."""
    if not key:
        if as_of is not None or order_by != "offset" or buckets != 1:
            raise SettingsError("--as-of, --order-by and --buckets are of a dump; say its --key, too")
        return None
    return ChangeSettings(
        mode="upsert", format="keyed_json", key=tuple(key), order_by=order_by, buckets=buckets
    )


def _rules(what: str, name: str | None, field: str | None, path: str | None) -> tuple[str, ...]:
    """One of the three as a rule of a topic; none where none is given. A name is given as it is, so it is no
    regular expression."""
    given = [
        f"{kind}:{text}"
        for kind, text in (("const", name), ("field", field), ("topic", path))
        if text is not None
    ]
    if len(given) > 1:
        raise SettingsError(f"the {what} comes from one place: --{what}, --{what}-field or --{what}-path")
    if path is not None:
        try:
            groups = re.compile(path).groups
        except re.error as error:
            raise SettingsError(f"--{what}-path {path!r} is no regular expression ({error})") from error
        if not groups:
            raise SettingsError(
                f"--{what}-path {path!r} has no group; put the part of the path that is the {what} into "
                "parentheses"
            )
    return tuple(given)


def _topic(
    record_format: RecordFormat, time_zone: str, tenants: tuple[str, ...], streams: tuple[str, ...]
) -> TopicSettings:
    try:
        return TopicSettings(
            name="backfill", format=record_format, time_zone=time_zone, tenant=tenants, stream=streams
        )
    except ValueError as error:
        raise SettingsError(
            f"--time-zone {time_zone!r} is no time zone; use a name like UTC or Europe/Berlin"
        ) from error


def _check_place_of_rejects(settings: IngestSettings, rejects: Path | None) -> None:
    if rejects is None and "bootstrap_servers" not in settings.kafka.model_fields_set:
        raise SettingsError(
            "records that cannot be stored need a place: give --rejects FILE, or, for the dead-letter topic, "
            "set kafka.bootstrap_servers (FIRN_INGEST_KAFKA__BOOTSTRAP_SERVERS)"
        )


@app.command()
def kafka(
    topic: Annotated[str, typer.Argument(help="one of the input topics of the settings")],
    partition: Annotated[list[int] | None, typer.Option(help="only this partition; repeatable")] = None,
    from_offset: Annotated[
        list[str] | None, typer.Option(help="first offset: N for all partitions, P:N for one; repeatable")
    ] = None,
    to_offset: Annotated[list[str] | None, typer.Option(help="offset before which to end, likewise")] = None,
    from_time: Annotated[
        datetime | None,
        typer.Option(help="from the first record that reached Kafka at or after this time, UTC"),
    ] = None,
    to_time: Annotated[
        datetime | None,
        typer.Option(help="before the first record that reached Kafka at or after this time, UTC"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as one JSON object")] = False,
) -> None:
    """Reads what came into a topic before live ingestion of it began; without bounds all of it. By the
    topic's own settings, old times accepted."""
    settings = IngestSettings.load().changed(limits__late="accept")
    topic_settings = _input_topic(settings, topic)
    bounds = [
        _bound(name, texts, time)
        for name, texts, time in (("from", from_offset, from_time), ("to", to_offset, to_time))
    ]
    (from_offsets, from_ms), (to_offsets, to_ms) = bounds
    reader, console = KafkaReader(settings), TerminalConsole(stderr=True)
    with ExitStack() as ends:
        # The lease comes first: what another run has filled is to be seen.
        catalog, control = _catalog(settings)
        lease = ends.enter_context(_lease(settings, control, f"kafka {topic}"))
        ranges = plan_ranges(
            settings,
            topic,
            reader,
            Wanted(from_offsets, to_offsets, from_ms, to_ms, frozenset(partition or ())),
        )
        told = [(each.partition.partition, each.start, each.end) for each in ranges]
        report = TopicReport(lambda text: console.print(Text(text)), topic=topic, ranges=told)
        if ranges:
            ledger = TopicLedger(
                topic, ranges[0].partition.topic_id, {each.partition.partition: each.start for each in ranges}
            )
            letters = _dead_letters(settings, _warehouse(settings, catalog), [ledger.topic_id])
            commits = ends.enter_context(_commits(settings, catalog, control, lease, ledger, letters, report))
            TopicBackfill(topic_settings, ranges, reader, Routes(settings), commits, ledger, report).run()
    _print(report, as_json)


def _input_topic(settings: IngestSettings, name: str) -> TopicSettings:
    found = next((each for each in settings.topics if each.name == name), None)
    if found is None or found.format == REPLAY:
        names = ", ".join(each.name for each in settings.topics if each.format != REPLAY)
        raise SettingsError(
            f"{name} is no input topic that has a past of its own; the settings name {names or 'none'}"
        )
    if found.changes is not None and found.has_changes and found.changes.mode != "history":
        raise SettingsError(
            f"{name} has changes of rows by mode {found.changes.mode}, whose past cannot be put under what "
            "its table has now: nothing tells what was deleted since; let the connector take a snapshot of "
            "the source again"
        )
    return found


def _bound(name: str, texts: list[str] | None, time: datetime | None) -> tuple[Bound, int | None]:
    """Offsets by partition, or a time in ms since 1970."""
    if texts and time is not None:
        raise SettingsError(f"give --{name}-offset or --{name}-time, not both")
    offsets = {}
    for text in texts or ():
        partition, colon, offset = text.rpartition(":")
        if not offset.isdecimal() or (colon and not partition.isdecimal()):
            raise SettingsError(
                f"--{name}-offset {text!r} is no offset; write 1000 for all partitions, or 3:1000 for "
                "partition 3"
            )
        offsets[int(partition) if colon else ALL] = int(offset)
    return offsets, None if time is None else epoch_ms(time.replace(tzinfo=UTC))


# ---- what both need


def _print(report: BackfillReport, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(report.to_json()) + "\n")
    else:
        TerminalConsole().print(report.to_renderable())


def _catalog(settings: IngestSettings) -> tuple[CatalogClient, CatalogClient | None]:
    """The catalog, and who holds leases and parked records."""
    token = settings.catalog.token
    catalog = CatalogClient(settings.catalog.uri, token=token.get_secret_value() if token else None)
    return catalog, control_of(settings, catalog)


def _warehouse(settings: IngestSettings, catalog: CatalogClient) -> str:
    warehouse = settings.catalog.warehouse or catalog.warehouse
    if not warehouse:
        raise SettingsError(
            "the catalog does not say where tables go; set FIRN_INGEST_CATALOG__WAREHOUSE to a location like "
            "s3://bucket/prefix"
        )
    return warehouse


@contextmanager
def _commits(
    settings: IngestSettings,
    catalog: CatalogClient,
    control: CatalogClient | None,
    lease: Lease,
    ledger: Ledger,
    letters: OnceLetters,
    report: BackfillReport,
) -> Iterator[BackfillCommits]:
    """All that a backfill writes by; at the end its counts are in the report."""
    gc.freeze()
    gc.set_threshold(COLLECT_OBJECTS)
    set_malloc(KEPT_MEMORY)
    storage, clock, warehouse = open_storage(), SystemClock(), _warehouse(settings, catalog)
    records = None if control is None else ParkedRecords(control, timeout_s=settings.commit.timeout_s)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="backfill") as pool:
        new_tables = NewTables(settings.tables.new_per_minute, clock)
        states = TableStates(
            catalog,
            storage,
            warehouse,
            records,
            pool,
            clock,
            LOAD_TIMEOUT_S,
            new_tables,
            lease.fencing_token or "",
            ledger,
        )
        bounds = Bounds(settings.commit.snapshots_max, settings.commit.manifests_max)
        index = settings.key_index
        committer = Committer(
            states,
            pool,
            clock,
            settings.commit.timeout_s,
            settings.tables.on_deleted,
            f"backfill-{uuid4().hex}",
            bounds,
            KeyIndexStore(storage, index.folder, index.bytes_max, clock=clock),
        )
        write = partial(write_many_hours, token_filter=settings.backfill.token_filter)
        retentions = CatalogRetentions(lambda: catalog, clock)
        writer = FlushWriter(settings, Columns(states), letters, storage, write, retentions, clock)
        try:
            yield BackfillCommits(
                states, committer, writer, report, lease.check, settings.flush.buffer_bytes_max
            )
        finally:
            report.dead_letters, report.dead_letters_before = letters.sent, letters.there_already


def _dead_letters(settings: IngestSettings, warehouse: str, sources: Iterable[str]) -> OnceLetters:
    topic = DeadLetters(settings, open_storage(), warehouse)
    topic.ensure_topic()
    return OnceLetters(topic, lambda: in_topic(KafkaReader(settings), settings), sources)


def _rejects(path: Path, sources: Iterable[str]) -> OnceLetters:
    file = RejectsFile(path)
    return OnceLetters(file, file.known, sources)


@contextmanager
def _lease(settings: IngestSettings, control: CatalogClient | None, what: str) -> Iterator[Lease]:
    """A lease of its own, so that nodes go on, other backfills too, and only the same one does not run twice
    at once.

    That of a run that was killed is waited for, some seconds. Raises RefusedError where it is held on.
    """
    about = sha256(what.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    name, holder = f"{lease_name(settings)}.backfill.{about}", f"{socket.gethostname()}:{os.getpid()}"
    with Lease(control, name, NODE_TIMES, holder=holder) as lease:
        if not lease.acquire(threading.Event(), LEASE_WAIT_S):
            raise RefusedError("the same backfill runs already, in another process; wait for its end")
        yield lease
