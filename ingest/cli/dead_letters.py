"""`python -m ingest dead-letters list | show | replay | erase`."""

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ingest.cli import letter_erasure
from ingest.dead_letters.dead_letter_replay import Destination, ReplayResult
from ingest.dead_letters.dead_letters import LetterFilter, known_stream, known_tenant
from ingest.decode.dead_letter import DeadLetter
from ingest.kafka.aside import Aside
from ingest.serve.tools import Tools
from lake.errors import SettingsError
from lake.settings import IngestSettings
from lake.terminal import TerminalConsole

app = typer.Typer(
    help="Messages that could not be stored: look at them, send them again, erase them.", no_args_is_help=True
)
app.command("erase")(letter_erasure.erase)

Reason = Annotated[
    str | None, typer.Option(help=("only dead letters of this reason, like undecodable or too_late"))
]
Topic = Annotated[str | None, typer.Option(help="only dead letters from this topic")]
Tenant = Annotated[
    str | None, typer.Option(help=("only dead letters of this tenant, as far as that can be told"))
]
Since = Annotated[
    datetime | None, typer.Option(help=("only dead letters that came at or after this time, UTC"))
]
Until = Annotated[datetime | None, typer.Option(help="only dead letters that came before this time, UTC")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def _filter(
    reason: str | None, topic: str | None, tenant: str | None, since: datetime | None, until: datetime | None
) -> LetterFilter:
    return LetterFilter(
        reason,
        topic,
        tenant,
        *(None if moment is None else moment.replace(tzinfo=UTC) for moment in (since, until)),
    )


@app.command("list")
def list_letters(
    reason: Reason = None,
    topic: Topic = None,
    tenant: Tenant = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(help="letters at most, the newest", min=1, max=100_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """Lists dead letters, the newest first."""
    box = Tools.open(IngestSettings.load()).dead_letters()
    letters, left = box.newest(_filter(reason, topic, tenant, since, until), limit)
    if as_json:
        for letter in letters:
            sys.stdout.write(json.dumps(letter.to_json()) + "\n")
    else:
        TerminalConsole().print(
            _table(letters), Text("there are more; raise --limit, or narrow down" if left is not None else "")
        )


def _table(letters: Iterable[DeadLetter]) -> Table:
    table = Table("id", "died", "reason", "from", "table", "begins")
    for letter in letters:
        told = letter.to_json()
        index = "" if letter.index is None else f"[{letter.index}]"
        where = f"{letter.was_topic}/{letter.was_partition}@{letter.was_offset}{index}"
        begins = told["begins"] if letter.body is None else f"(in {letter.body})"
        table.add_row(
            letter.id,
            told["died"],
            Text(letter.reason),
            Text(where),
            Text(letter.table or "-"),
            Text((begins or "-")[:60]),
        )
    return table


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(help="id of the dead letter, as list shows it: 0:42")],
    as_json: AsJson = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="write the bytes of the message to standard output, and nothing else"),
    ] = False,
) -> None:
    """Shows one dead letter with everything it had."""
    tools = Tools.open(IngestSettings.load())
    letter = tools.dead_letters().one(letter_id)
    if raw:
        sys.stdout.buffer.write(letter.read_value(tools.letters_aside) or b"")
    elif as_json:
        sys.stdout.write(json.dumps(letter.to_json_whole(tools.letters_aside), indent=2) + "\n")
    else:
        TerminalConsole().print(_whole(letter, tools.letters_aside))


def _whole(letter: DeadLetter, aside: Aside) -> RenderableType:
    told = letter.to_json_whole(aside)
    facts = Table(show_header=False, box=None)
    for name in (
        "id",
        "died",
        "reason",
        "detail",
        "topic",
        "topic_id",
        "partition",
        "offset",
        "index",
        "timestamp",
        "tenant",
        "table",
        "attempt",
        "bytes",
        "body",
    ):
        if told[name] is not None:
            facts.add_row(Text(name, style="bold"), Text(str(told[name])))
    facts.add_row(Text("key", style="bold"), _shown(letter.key))
    for name, value in letter.headers:
        facts.add_row(Text(f"header {name}", style="bold"), _shown(value))
    return Group(facts, Text("value", style="bold"), _shown(letter.read_value(aside)))


def _shown(value: bytes | None) -> Text:
    return Text("(null)" if value is None else value.decode("utf-8", "backslashreplace"))


@app.command()
def replay(
    ids: Annotated[
        list[str] | None, typer.Argument(help="ids of dead letters; none: those of the options")
    ] = None,
    reason: Reason = None,
    topic: Topic = None,
    tenant: Tenant = None,
    since: Since = None,
    until: Until = None,
    everything: Annotated[bool, typer.Option("--all", help="every dead letter there is")] = False,
    to_tenant: Annotated[
        str | None, typer.Option(help="the tenant they go to, where the rules name none or a wrong one")
    ] = None,
    to_stream: Annotated[str | None, typer.Option(help="the stream they go to")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would happen, send nothing")] = False,
    look: Annotated[
        bool,
        typer.Option(
            "--look/--no-look",
            help="look whether they are rows of their tables already, and leave those alone",
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Sends dead letters to the replay topic, which the ingesters read; each dead letter once for each of its
    attempts, however often you ask, and none that is a row already."""
    wanted = _filter(reason, topic, tenant, since, until)
    if not ids and wanted.is_all and not everything:
        raise SettingsError(
            "say which dead letters: their ids, --reason, --topic, --tenant, --since, --until, or --all"
        )
    tools = Tools.open(IngestSettings.load())
    box = tools.dead_letters()
    destination = Destination(
        None if to_tenant is None else known_tenant(to_tenant),
        None if to_stream is None else known_stream(to_stream),
    )
    letters = map(box.one, ids) if ids else box.all(wanted)
    result = tools.replayer().replay(letters, destination, dry_run=dry_run, look=look)
    if as_json:
        sys.stdout.write(json.dumps({"dry_run": dry_run, **result.to_json()}) + "\n")
    else:
        TerminalConsole().print(_summary(result, dry_run=dry_run))


def _summary(result: ReplayResult, *, dry_run: bool) -> RenderableType:
    sent = Table(
        "table",
        "letters",
        title=f"{'would be ' if dry_run else ''}replayed: {result.sent.total():,}",
        title_justify="left",
    )
    for table, count in islice(result.sent.most_common(), 50):
        sent.add_row(Text(table), f"{count:,}")
    left = [Text(f"left alone, {why}: {count:,}") for why, count in result.left.most_common()]
    return Group(*([sent] if result.sent else [Text("nothing is replayed")]), *left)
