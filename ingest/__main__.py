"""`python -m ingest`: run the fan-out."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from ingest.api import serve_in_thread
from ingest.engines.local import LocalEngine
from lake.errors import FirnError
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


if __name__ == "__main__":
    try:
        app()
    except FirnError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False)
        sys.exit(1)
