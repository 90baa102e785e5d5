"""`python -m ingest`: run the fan-out."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ingest.api import serve_in_thread
from ingest.engines.local import LocalEngine
from ingest.explain import explain, now_ms, to_renderable, topic_settings
from ingest.router import Envelope
from lake.errors import FirnError, NotFoundError, SettingsError
from lake.logs import configure_logs
from lake.settings import IngestSettings

app = typer.Typer(
    help="Kafka -> Iceberg: one table per tenant and stream, exactly once.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


@app.callback()
def main() -> None:
    """Settings come from firn.toml (section [ingest]) and FIRN_INGEST_* variables."""


@app.command()
def run(
    bootstrap_servers: Annotated[str | None, typer.Option(help="Kafka brokers, host:port")] = None,
    catalog_uri: Annotated[str | None, typer.Option(help="base URL of the REST catalog")] = None,
    port: Annotated[int | None, typer.Option(help="port of /readyz, /metrics and /v1/status")] = None,
) -> None:
    """Reads the input topics and commits their records, until SIGTERM."""
    configure_logs("ingest")
    settings = IngestSettings.load(bootstrap_servers=bootstrap_servers, catalog_uri=catalog_uri, port=port)
    engine = LocalEngine(settings)
    serve_in_thread(engine, settings.host, settings.port)
    engine.run()


@app.command("explain-message")
def explain_message(
    topic: Annotated[str | None, typer.Option(help="topic it came from, whose settings route and read it")] = None,
    header: Annotated[list[str] | None, typer.Option(help="header as NAME=VALUE; may be repeated")] = None,
    key: Annotated[str | None, typer.Option(help="key of the message")] = None,
    file: Annotated[Path | None, typer.Option(help="file with the message; without it, standard input")] = None,
    timestamp_ms: Annotated[int | None, typer.Option(help="Kafka timestamp, ms since 1970; without it, now")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Shows what becomes of one message, and why: tenant, table, time, every column, errors."""
    settings = IngestSettings.load()
    if wrong := [pair for pair in header or () if "=" not in pair]:
        raise SettingsError(f"{wrong[0]!r} is no header; write --header NAME=VALUE")
    if file is not None and not file.is_file():
        raise NotFoundError(f"there is no file {file}; give one that holds the message, or pipe it in")
    value = sys.stdin.buffer.read() if file is None else file.read_bytes()
    chosen, why = topic_settings(settings, topic)
    headers = [(name, text.encode()) for name, _, text in (pair.partition("=") for pair in header or ())]
    envelope = Envelope(chosen.name, None if key is None else key.encode(), headers, value)
    explanation = explain(settings, chosen, why, envelope, now_ms() if timestamp_ms is None else timestamp_ms)
    if as_json:
        sys.stdout.write(json.dumps(explanation.to_json(), indent=2) + "\n")
    else:
        Console().print(to_renderable(explanation))


if __name__ == "__main__":
    try:
        app()
    except FirnError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False)
        sys.exit(1)
