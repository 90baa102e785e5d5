"""`python -m query audit`: whether who did what is still as it was written."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import typer

from lake.audit.chain import FAULTS_MAX, Chain, Verification, break_between, read_row
from lake.audit.event import STREAM
from lake.errors import ProtocolError, RefusedError
from lake.tenant import SYSTEM_TENANT
from lake.terminal import json_text
from query.cli.remote import Remote, open_remote
from query.model.instant import EARLIEST, LATEST, rfc3339

audit_cli = typer.Typer(help="The audit trail.", no_args_is_help=True)
TRAIL = {"tenant": SYSTEM_TENANT.name, "stream": STREAM}
_HEAD = re.compile(r"(?P<writer>.+):(?P<sequence>\d+):(?P<hash>[0-9a-f]{64})")


@audit_cli.callback()
def main() -> None:
    """Needs an administrator's key (FIRN_QUERY_CLIENT__KEY)."""


@audit_cli.command()
def verify(
    day: Annotated[
        str, typer.Option(help="only this day (UTC), as 2026-11-26, and what stands before and after it")
    ] = "",
    head: Annotated[
        list[str] | None,
        typer.Option(help="an end that was told before, WRITER:SEQUENCE:HASH; it has to be there"),
    ] = None,
) -> None:
    """Read the trail, and tell of each chain whether an event is missing, was changed, or stands elsewhere.
    Ends with 1 where one is."""
    start, end = _range(day)
    verification = Verification()
    with open_remote() as remote:
        for row in _rows(remote, start, end):
            verification.add(row)
        verification.check()
        if day:
            for chain in verification.chains.values():
                _check_neighbours(remote, chain, start, end)
    for text in head or ():
        _check_head(verification, text)
    is_whole = not verification.strangers
    for chain in sorted(verification.chains.values(), key=lambda each: each.writer):
        is_whole &= not chain.faults
        sys.stdout.write(json_text(_told(chain)) + "\n")
    for stranger in verification.strangers[:FAULTS_MAX]:
        sys.stdout.write(json_text({"fault": stranger}) + "\n")
    if not is_whole:
        raise typer.Exit(1)


def _range(day: str) -> tuple[datetime, datetime]:
    if not day:
        return EARLIEST, LATEST
    try:
        start = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
    except ValueError as error:
        raise RefusedError(f"--day {day!r} is no day; write 2026-11-26") from error
    return start, start + timedelta(days=1)


def _rows(remote: Remote, start: datetime, end: datetime) -> Iterator[dict[str, Any]]:
    """All rows of the range. Raises ProtocolError where the answer breaks off or is not complete."""
    basis = None
    body = {**TRAIL, "from": rfc3339(start), "to": rfc3339(end), "order": "oldest"}
    for line in remote.lines("/v1/search/stream", body):
        if (basis := line.get("basis")) is None:
            yield line
    if basis is None:
        raise ProtocolError("the answer broke off; verify again")


def _check_neighbours(remote: Remote, chain: Chain, start: datetime, end: datetime) -> None:
    """Compares a day's first and last event with the one before and the one after it."""
    writer = chain.writer.replace("\\", "\\\\").replace('"', '\\"')
    query = {**TRAIL, "query": f'firn_writer:"{writer}"', "limit": 1}
    for first, until, order in ((EARLIEST, start, "newest"), (end, LATEST, "oldest")):
        found = remote.post(
            "/v1/search", {**query, "from": rfc3339(first), "to": rfc3339(until), "order": order}
        )
        read = read_row(found["rows"][0]) if found["rows"] else None
        if not isinstance(read, tuple):
            continue
        pair = (read[1], chain.first) if order == "newest" else (chain.head, read[1])
        if (fault := break_between(*pair)) is not None:
            chain.faults.append(fault)


def _check_head(verification: Verification, text: str) -> None:
    told = _HEAD.fullmatch(text)
    if told is None:
        raise RefusedError(f"--head {text!r} is no end of a chain; give what was told, WRITER:SEQUENCE:HASH")
    chain = verification.chains.setdefault(told["writer"], Chain(told["writer"]))
    if not chain.holds(int(told["sequence"]), told["hash"]):
        chain.faults.append(f"event {told['sequence']}, which was its end once, is missing or was changed")


def _told(chain: Chain) -> dict[str, Any]:
    told: dict[str, Any] = {"writer": chain.writer, "events": len({*chain.links})}
    if chain.links:
        told |= {
            "from": chain.first.sequence,
            "to": chain.head.sequence,
            "head": f"{chain.writer}:{chain.head.sequence}:{chain.head.hash}",
        }
    return told | {"faults": chain.faults[:FAULTS_MAX], "notes": chain.notes}
