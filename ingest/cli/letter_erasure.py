"""`python -m ingest dead-letters erase`."""

import json
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from ingest.dead_letters.dead_letters import LetterFilter, parse_id
from ingest.dead_letters.letter_erasure import ErasedLetters, Wanted, holds
from ingest.decode.dead_letter import DeadLetter
from ingest.kafka.aside import Aside
from ingest.serve.tools import Tools
from lake.errors import SettingsError
from lake.settings import IngestSettings
from lake.terminal import TerminalConsole

IDENTITY_PARTS = 3


def erase(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            help=(
                "ids of dead letters, as list and the report of an erasure show them; none: those of the "
                "options"
            )
        ),
    ] = None,
    contains: Annotated[
        str,
        typer.Option(
            help=("only dead letters that hold this text, in any case, in value, key, headers or detail")
        ),
    ] = "",
    identity: Annotated[
        list[str] | None, typer.Option(help="only the message TOPIC_ID:PARTITION:OFFSET; may be repeated")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="only dead letters of this reason")] = None,
    topic: Annotated[str | None, typer.Option(help="only dead letters from this topic")] = None,
    tenant: Annotated[
        str | None, typer.Option(help="only dead letters of this tenant, as far as that can be told")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="only dead letters that came at or after this time, UTC")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="only dead letters that came before this time, UTC")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="every dead letter there is, or every one of the tenant")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would go, change nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Erases dead letters for good, with what they keep in the warehouse; the others get new ids. Safe to run
    again after a crash."""
    bounds = (None if moment is None else moment.replace(tzinfo=UTC) for moment in (since, until))
    wanted = LetterFilter(reason, topic, None, *bounds)
    if not (ids or contains or identity or everything or not wanted.is_all):
        raise SettingsError(
            "say which dead letters: their ids, --contains, --identity, --reason, --topic, --since, --until, "
            "or "
            "--all (with --tenant: all of his)"
        )
    tools = Tools.open(IngestSettings.load())
    takes = chooser(
        frozenset(map(parse_id, ids or ())),
        frozenset(map(parse_identity, identity or ())),
        contains,
        wanted,
        tools.letters_aside,
    )
    result = tools.letter_erasure().erase(takes, tenant=tenant, dry_run=dry_run)
    if as_json:
        sys.stdout.write(json.dumps({"dry_run": dry_run, **result.to_json()}) + "\n")
    else:
        TerminalConsole().print(Text(_sentence(result, dry_run=dry_run)))


def chooser(
    ids: frozenset[tuple[int, int]],
    identities: frozenset[tuple[str, int, int]],
    contains: str,
    wanted: LetterFilter,
    aside: Aside,
) -> Wanted:
    """Takes the dead letters that fulfil all that is asked for; what is empty asks for nothing."""

    def takes(letter: DeadLetter) -> bool:
        return (
            (not ids or (letter.partition, letter.offset) in ids)
            and (not identities or letter.identity[:IDENTITY_PARTS] in identities)
            and wanted.takes(letter)
            and (not contains or holds(letter, contains, aside))
        )

    return takes


def parse_identity(text: str) -> tuple[str, int, int]:
    """Topic id, partition and offset of `TOPIC_ID:PARTITION:OFFSET`. Raises SettingsError."""
    topic_id, *numbers = text.split(":")
    if (
        not topic_id
        or len(numbers) != IDENTITY_PARTS - 1
        or not all(number.isdecimal() for number in numbers)
    ):
        raise SettingsError(
            f"{text!r} is no identity of a message; it looks like TOPIC_ID:0:42, as `dead-letters show` "
            "tells it"
        )
    return topic_id, int(numbers[0]), int(numbers[1])


def _sentence(result: ErasedLetters, *, dry_run: bool) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in result.by_reason.most_common())
    said = (
        f"{'would be ' if dry_run else ''}erased: {result.erased:,} "
        f"letters{f' ({reasons})' if reasons else ''}; {result.kept:,} stay"
    )
    if dry_run or not result.erased:
        return said
    return (
        f"{said}, under new ids. {result.bodies:,} objects went from the warehouse; the broker frees its "
        "disk when its segment ends (segment.ms)"
    )
