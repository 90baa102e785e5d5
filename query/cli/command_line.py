"""`python -m query search|tail|export|sql`: the API from a terminal. Rows go to standard output, everything
else to standard error."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from lake.errors import RefusedError
from lake.terminal import TerminalConsole, json_text, write_csv
from query.cli.remote import Remote, open_remote

Tenant = Annotated[str, typer.Argument(help="the tenant's name, exactly as its records carry it")]
Query = Annotated[
    str, typer.Argument(help="words or field:value, e.g. 'status:500 AND path:\"/api\"'; empty: every row")
]
Stream = Annotated[str, typer.Option(help="one of the tenant's streams")]
Since = Annotated[str, typer.Option("--from", help="now-15m, 2026-11-21, 2026-11-21T10:30:00Z")]
Until = Annotated[str, typer.Option("--to", help="as --from; not included")]
PointInTime = Annotated[
    str, typer.Option(help="of a link or an earlier answer: only the rows that were there then")
]
AsJson = Annotated[bool, typer.Option("--json", help="a JSON object per line")]
COLOURS = {
    "fatal": "bold red",
    "error": "red",
    "warn": "yellow",
    "info": "blue",
    "debug": "bright_black",
    "other": "default",
}
PAGE_ROWS_MAX = 1_000
NOT_COMPLETE = 3


def search(
    tenant: Tenant,
    query: Query = "",
    stream: Stream = "logs",
    since: Since = "now-15m",
    until: Until = "now",
    limit: Annotated[int, typer.Option(help="rows at most", min=1)] = 100,
    all_rows: Annotated[bool, typer.Option("--all", help="every row, without a limit")] = False,
    oldest: Annotated[bool, typer.Option("--oldest", help="the oldest rows first")] = False,
    pin: PointInTime = "",
    as_json: AsJson = False,
) -> None:
    """Search rows, the newest first; exit code 3 where the answer is not complete."""
    body = {
        "tenant": tenant,
        "stream": stream,
        "from": since,
        "to": until,
        "query": query,
        "pin": pin,
        "order": "oldest" if oldest else "newest",
    }
    out = TerminalConsole(markup=True, highlight=False, soft_wrap=True)
    with open_remote() as remote:
        basis = (
            _all(remote, body, out, as_json=as_json)
            if all_rows
            else _pages(remote, body, limit, out, as_json=as_json)
        )
    _explain(basis)
    if not basis.get("complete", False):
        raise typer.Exit(NOT_COMPLETE)


def _all(remote: Remote, body: dict[str, Any], out: TerminalConsole, *, as_json: bool) -> dict[str, Any]:
    for line in remote.lines("/v1/search/stream", body):
        if "basis" in line:
            return dict(line["basis"])
        _print_row(line, out, as_json=as_json)
    raise RefusedError("the answer broke off before its end; search again, or make an export")


def _pages(
    remote: Remote, body: dict[str, Any], limit: int, out: TerminalConsole, *, as_json: bool
) -> dict[str, Any]:
    cursor, left = "", limit
    while True:
        page = remote.post("/v1/search", {**body, "limit": min(left, PAGE_ROWS_MAX), "cursor": cursor})
        for row in page["rows"]:
            _print_row(row, out, as_json=as_json)
        left -= len(page["rows"])
        cursor = page["next"] or ""
        # The following pages are of the same rows: what "now" is was settled by the first.
        body = {**body, "from": page["from"], "to": page["to"], "pin": page["pin"]}
        if not cursor or left <= 0:
            return page


def tail(
    tenant: Tenant,
    words: Annotated[str, typer.Argument(help="only records that hold all of them, in any case")] = "",
    stream: Annotated[str, typer.Option(help="one of the tenant's streams; empty: all")] = "",
    as_json: AsJson = False,
) -> None:
    """Show records as they reach Kafka, before they are in a table, until Ctrl-C."""
    out, aside = (
        TerminalConsole(markup=True, highlight=False, soft_wrap=True),
        TerminalConsole(markup=True, stderr=True, highlight=False),
    )
    with open_remote() as remote:
        try:
            for kind, data in remote.events("/v1/tail", {"tenant": tenant, "stream": stream, "words": words}):
                if kind == "record":
                    _print_row({"level": "other", **data}, out, as_json=as_json)
                elif kind == "failed":
                    raise RefusedError(str(data.get("message")))
                else:
                    aside.print(f"[dim]{kind}: {escape(json_text(data))}[/dim]")
        except KeyboardInterrupt:
            return


def export(
    tenant: Tenant,
    to_file: Annotated[Path, typer.Argument(help="file to write; for parquet a folder")],
    query: Query = "",
    stream: Stream = "logs",
    since: Since = "now-15m",
    until: Until = "now",
    written_as: Annotated[str, typer.Option("--format", help="ndjson, csv or parquet")] = "ndjson",
    pin: PointInTime = "",
    resume: Annotated[
        str,
        typer.Option(
            help="id of an export that was begun earlier: it is fetched, and goes on where it failed"
        ),
    ] = "",
) -> None:
    """Export all rows of a search; waits, fetches, and compares the checksums."""
    with open_remote() as remote:
        if resume:
            job = remote.post(f"/v1/exports/{resume}/resume", {})
        else:
            job = remote.post(
                "/v1/exports",
                {
                    "tenant": tenant,
                    "stream": stream,
                    "from": since,
                    "to": until,
                    "query": query,
                    "pin": pin,
                    "format": written_as,
                },
            )
        aside = TerminalConsole(stderr=True, highlight=False)
        aside.print(f"export {job['id']}")
        job = _wait(remote, job, aside)
        if job["state"] != "done":
            raise RefusedError(f"the export failed: {job['message']}. Go on with --resume {job['id']}")
        remote.download(job, to_file)
        aside.print(f"{job['rows']:,} rows, {job['bytes']:,} bytes in {to_file}, checksums compared")


def _wait(remote: Remote, job: dict[str, Any], aside: TerminalConsole) -> dict[str, Any]:
    with Progress(console=aside, transient=True) as progress:
        shown = progress.add_task("rows", total=1.0)
        while job["state"] == "running":
            progress.update(
                shown,
                completed=job["progress"],
                description=f"{job['rows']:,} rows {escape(str(job['message']))}",
            )
            job = remote.get_later(f"/v1/exports/{job['id']}")
    return job


def sql(
    statement: Annotated[
        str, typer.Argument(help="one SELECT in Trino's SQL; tables are streams: logs, or acme.logs")
    ],
    tenant: Annotated[str, typer.Option(help="whose streams names without a schema mean")] = "",
    limit: Annotated[int, typer.Option(help="rows at most", min=1)] = 1_000,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="comma-separated values with a header")] = False,
) -> None:
    """Ask Trino in SQL, read-only."""
    with open_remote() as remote:
        answer = remote.post("/v1/sql", {"sql": statement, "tenant": tenant, "limit": limit})
    names = [column["name"] for column in answer["columns"]]
    if as_json:
        _write(json_text(dict(zip(names, row, strict=True))) for row in answer["rows"])
    elif as_csv:
        write_csv([names, *answer["rows"]])
    else:
        table = Table(*(Column(Text(name)) for name in names))
        for row in answer["rows"]:
            table.add_row(*(Text("" if value is None else str(value)) for value in row))
        TerminalConsole(highlight=False).print(table)
    _explain(answer)


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")


def _print_row(row: Mapping[str, Any], out: TerminalConsole, *, as_json: bool) -> None:
    if as_json:
        _write([json_text(row)])
        return
    level = COLOURS.get(str(row["level"]), "default")
    fields = " ".join(f"{name}={value}" for name, value in row["fields"].items())
    said = "  ".join(text for text in (str(row["message"] or ""), fields) if text)
    out.print(
        f"[dim]{escape(str(row['timestamp']))}[/dim] "
        f"[{level}]{escape(str(row['severity'] or '-')):7}[/{level}] {escape(said)}"
    )


def _explain(basis: Mapping[str, Any]) -> None:
    """What a person should know about an answer."""
    aside = TerminalConsole(markup=True, stderr=True, highlight=False)
    for warning in basis.get("warnings", ()):
        aside.print(
            f"[yellow]{escape(warning['message'])}: {escape(warning.get('suggestion') or '')}[/yellow]"
        )
    style = "dim" if basis.get("as_usual") else "yellow"
    for reason in basis.get("reasons", ()):
        aside.print(f"[{style}]not complete: {escape(reason)}[/{style}]")
    for note in basis.get("notes", ()):
        aside.print(f"[dim]{escape(note)}[/dim]")
