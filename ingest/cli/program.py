"""`python -m ingest`: run the fan-out, and look after it."""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich.table import Table
from rich.text import Text

from ingest.audit import audit_report
from ingest.cli import backfill, dead_letters, parked
from ingest.kafka.kafka_reader import KafkaReader
from ingest.kafka.partitioner import partition_of
from ingest.kafka.reset_topic import Reset, check_no_node, plan_reset, reset_topic
from ingest.kafka.topic_mac import check_keys
from ingest.node.engines.local import LocalEngine
from ingest.node.engines.worker_process import WorkerProcess, fork_workers
from ingest.route.router import Envelope
from ingest.serve import status
from ingest.serve.explain import explain, now_ms, to_renderable, topic_settings
from ingest.serve.node_token import check_host
from ingest.serve.tools import Tools
from lake.arrow_start import start_arrow
from lake.clock import epoch_ms
from lake.errors import NotFoundError, SettingsError
from lake.kafka_access_list import grants
from lake.listening import listen
from lake.logs import configure_logs
from lake.settings import IngestSettings
from lake.terminal import TerminalConsole

log = structlog.get_logger()
app = typer.Typer(
    help="Kafka -> Iceberg: one table per tenant and stream, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(backfill.app, name="backfill")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(parked.app, name="parked")
app.command("resolve")(parked.resolve)
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]


@app.callback()
def main() -> None:
    """Settings come from firn.toml (section [ingest]) and FIRN_INGEST_* variables."""
    configure_logs("ingest")
    start_arrow()


@app.command()
def run(
    bootstrap_servers: Annotated[str | None, typer.Option(help="Kafka brokers, host:port")] = None,
    catalog_uri: Annotated[str | None, typer.Option(help="base URL of the REST catalog")] = None,
    port: Annotated[int | None, typer.Option(help="port of /readyz, /metrics and /v1/status")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="local: worker processes of this node; spark: executors of a Spark cluster"),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(help="Spark master of the engine spark: local[2], spark://host:7077, k8s://..., yarn"),
    ] = None,
) -> None:
    """Reads the input topics and commits their records, until SIGTERM."""
    from ingest.serve.api import serving  # what tools need not import

    chosen = {
        "kafka__bootstrap_servers": bootstrap_servers,
        "catalog__uri": catalog_uri,
        "node__port": port,
        "engine": engine,
        "spark__master": master,
    }
    settings = IngestSettings.load(**chosen).with_own_topics()
    check_host(settings, settings.node.host)
    check_keys(settings)
    node = _engine(settings, fork_workers(1 if settings.engine == "spark" else settings.workers))
    with serving(node, settings, listen(settings.node.host, settings.node.port)):
        node.run()


def _engine(settings: IngestSettings, waiting: list[WorkerProcess]) -> LocalEngine:
    if settings.engine == "local":
        return LocalEngine(settings, waiting)
    from ingest.node.engines.spark import SparkEngine

    return SparkEngine(settings, waiting)


@app.command()
def serve(
    host: Annotated[
        str | None, typer.Option(help="address to listen on; beyond loopback it needs ingest.http.token")
    ] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on; 0: any free one")] = None,
) -> None:
    """Offers lag, freshness, dead letters and a live tail over HTTP, until SIGTERM. Runs beside the nodes,
    also while none of them does."""
    from ingest.serve.api import SHUTDOWN_S  # as above
    from ingest.serve.app import create_app
    from lake.http_server import bounded_server

    settings = IngestSettings.load(serve__host=host, serve__port=port)
    check_host(settings, settings.serve.host)
    check_keys(settings)
    app_over_tools = create_app(Tools.open(settings))
    listener = listen(settings.serve.host, settings.serve.port)
    log.info("serve.listening", host=settings.serve.host, port=listener.getsockname()[1])
    bounded_server(app_over_tools, settings.http, shutdown_s=SHUTDOWN_S, log_level="warning").run(
        sockets=[listener]
    )


@app.command("own-topics")
def own_topics() -> None:
    """Prints the ends of Firn's own topics as one JSON object: what to set as
    internal_topics.unsigned_below where signing_keys are set for the first time."""
    settings = IngestSettings.load()
    reader = KafkaReader(settings)
    ends = reader.ends(
        reader.partitions(
            [
                settings.internal_topics.dead_letters,
                settings.internal_topics.parked,
                settings.internal_topics.replay,
            ]
        )
    )
    sys.stdout.write(
        json.dumps({f"{each.topic}:{each.partition}": end.end for each, end in sorted(ends.items())}) + "\n"
    )


@app.command("access-list")
def access_list(
    user: Annotated[str, typer.Option(help="Firn's user as Kafka names it")] = "firn",
) -> None:
    """Prints what Firn's user needs in Kafka's access lists for these settings: arguments of kafka-acls.sh,
    one resource a line."""
    for grant in grants(IngestSettings.load().with_own_topics()):
        sys.stdout.write(grant.command(user) + "\n")


@app.command("status")
def show_status(as_json: AsJson = False) -> None:
    """Lag, freshness per tenant, parked tables, and the running node's buffers and breakers."""
    found = Tools.open(IngestSettings.load()).status().read()
    if as_json:
        sys.stdout.write(json.dumps(found.to_json(), indent=2) + "\n")
    else:
        TerminalConsole().print(status.to_renderable(found))


@app.command()
def audit(
    since: Annotated[
        datetime | None,
        typer.Option(
            help=(
                "only records that reached Kafka at or after this time, UTC; without it all that Kafka "
                "still has"
            )
        ),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="also records from before the group began to read: all of a topic's past is backfilled",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Proves per partition that consumed = written + dead-lettered + parked, no gap and no duplicate; ends
    with 1 where that does not hold."""
    found = (
        Tools.open(IngestSettings.load())
        .auditor()
        .audit(None if since is None else epoch_ms(since.replace(tzinfo=UTC)), whole=whole)
    )
    if as_json:
        sys.stdout.write(json.dumps(audit_report.to_json(found)) + "\n")
    else:
        TerminalConsole().print(audit_report.to_renderable(found))
    if not found.is_clean:
        raise typer.Exit(1)


@app.command("partition")
def partition(
    tenants: Annotated[list[str], typer.Argument(help="as records name them")],
    partitions: Annotated[int, typer.Option(help="of the topic", min=1)],
    spread: Annotated[int, typer.Option(help="partitions over which each goes: for hot tenants", min=1)] = 1,
) -> None:
    """Prints where a producer should send these tenants' records: each tenant and its partitions, from 0."""
    if spread > partitions:
        raise SettingsError(f"a tenant cannot be spread over {spread} of {partitions} partitions")
    for tenant in tenants:
        found = [partition_of(tenant, partitions, spread=spread, turn=turn) for turn in range(spread)]
        sys.stdout.write(f"{tenant}\t{','.join(map(str, found))}\n")


@app.command("reset-topic")
def reset(
    topic: Annotated[str, typer.Argument(help="input topic that was re-created")],
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """After a topic was re-created: lets the group read the new one from its start. No node may run
    meanwhile."""
    tools = Tools.open(IngestSettings.load())
    check_no_node(tools.settings, tools.control)
    plan = plan_reset(tools.settings, topic, tools.reader())
    console = TerminalConsole()
    if not any(each.is_needed for each in plan):
        console.print(
            Text(
                f"nothing to do: what group {tools.settings.kafka.group} has stored for {topic} is of this "
                "very topic"
            )
        )
        return
    console.print(_reset_table(plan, tools.settings.kafka.group))
    if not yes and not typer.confirm(f"read topic {topic} from its start?"):
        raise typer.Exit(1)
    reset_topic(tools.settings, plan, tools.control)
    console.print(
        Text(f"done: the next ingester of group {tools.settings.kafka.group} reads {topic} from its start")
    )


def _reset_table(plan: list[Reset], group: str) -> Table:
    table = Table(
        "partition",
        "stored offset",
        "of topic id",
        "read from",
        "to its end",
        title=f"what group {group} would read",
        title_justify="left",
    )
    for each in plan:
        stored = "-" if each.stored is None else str(each.stored)
        table.add_row(
            str(each.partition.partition),
            stored,
            Text(each.stored_topic_id or "-"),
            str(each.start),
            str(each.end),
        )
    return table


@app.command("explain-message")
def explain_message(
    topic: Annotated[
        str | None, typer.Option(help="topic it came from, whose settings route and read it")
    ] = None,
    header: Annotated[list[str] | None, typer.Option(help="header as NAME=VALUE; may be repeated")] = None,
    key: Annotated[str | None, typer.Option(help="key of the message")] = None,
    file: Annotated[
        Path | None, typer.Option(help="file with the message; without it, standard input")
    ] = None,
    timestamp_ms: Annotated[
        int | None, typer.Option(help="Kafka timestamp, ms since 1970; without it, now")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Shows what becomes of one message, and why: tenant, table, time, every column, errors."""
    settings = IngestSettings.load()
    if wrong := [pair for pair in header or () if "=" not in pair]:
        raise SettingsError(f"{wrong[0]!r} is no header; write --header NAME=VALUE")
    if file is not None and not file.is_file():
        raise NotFoundError(f"there is no file {file}; give one that holds the message, or pipe it in")
    if file is None and sys.stdin is None:
        raise SettingsError("there is no standard input to read the message from; name a file with --file")
    value = sys.stdin.buffer.read() if file is None else file.read_bytes()
    chosen, why = topic_settings(settings, topic)
    # What is no UTF-8 in an argument comes as surrogates that stand for its bytes.
    headers = [(name, os.fsencode(text)) for name, _, text in (pair.partition("=") for pair in header or ())]
    envelope = Envelope(chosen.name, None if key is None else os.fsencode(key), headers, value)
    explanation = explain(settings, chosen, why, envelope, now_ms() if timestamp_ms is None else timestamp_ms)
    if as_json:
        sys.stdout.write(json.dumps(explanation.to_json(), indent=2) + "\n")
    else:
        TerminalConsole().print(to_renderable(explanation))
