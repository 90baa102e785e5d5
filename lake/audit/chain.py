"""Whether events that were read back are still the chains that were written: none removed, changed or put
elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from lake.audit.event import GENESIS, hash_of

FAULTS_MAX = 20  # of one chain; the first says where to look
OF_ITSELF = frozenset({"event_original", "event_hash"})


class Link(NamedTuple):
    """An event's place in its chain."""

    sequence: int
    previous: str
    hash: str


@dataclass(slots=True)
class Chain:
    """The events of one writer. `faults`: sentences; `notes`: what cannot be told from the events alone."""

    writer: str
    links: list[Link] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def first(self) -> Link:
        return min(self.links)

    @property
    def head(self) -> Link:
        """The event with which it ends."""
        return max(self.links)

    def holds(self, sequence: int, digest: str) -> bool:
        """Whether an event that was the head once is still there."""
        return any((link.sequence, link.hash) == (sequence, digest) for link in self.links)

    def check(self) -> None:
        """Compares the events with each other."""
        links = sorted(set(self.links))
        if repeated := len(self.links) - len(links):
            self.notes.append(f"{repeated:,} events stand there twice, as an answer of Kafka's was lost")
        if links[0].sequence > 1:
            self.notes.append(
                f"begins with event {links[0].sequence}: what was before is not there (retention, or removed)"
            )
        elif links[0].previous != GENESIS:
            self.faults.append("event 1 follows another one, and is no beginning")
        for before, link in pairwise(links):
            if (fault := break_between(before, link)) is not None:
                self.faults.append(fault)


class Verification:
    """Takes rows of the table in any order, and tells of each writer's chain."""

    def __init__(self) -> None:
        self.chains: dict[str, Chain] = {}
        self.strangers: list[str] = []  # rows that are no events

    def add(self, row: Mapping[str, Any]) -> None:
        """Looks at one row, as the API gives it."""
        read = read_row(row)
        if isinstance(read, str):
            self.strangers.append(read)
            return
        writer, link, changed = read
        chain = self.chains.setdefault(writer, Chain(writer))
        chain.links.append(link)
        if changed is not None:
            chain.faults.append(f"event {link.sequence} was changed: {changed}")

    def check(self) -> None:
        """Compares the events of each writer, when all were taken."""
        for chain in self.chains.values():
            chain.check()


def break_between(before: Link, link: Link) -> str | None:
    """What is wrong between two neighbours; None where one follows the other."""
    if link.sequence == before.sequence:
        return f"two different events are event {link.sequence}"
    if link.sequence > before.sequence + 1:
        first, last = before.sequence + 1, link.sequence - 1
        return f"event {first} is missing" if first == last else f"events {first} to {last} are missing"
    if link.previous != before.hash:
        return f"event {link.sequence} does not follow event {before.sequence} as it stands there"
    return None


def read_row(row: Mapping[str, Any]) -> tuple[str, Link, str | None] | str:
    """A row's writer and place, and how it differs from what was written (None: it does not); a sentence
    where it is no event."""
    fields: Mapping[str, Any] = row["fields"]
    original, digest = fields.get("event_original"), fields.get("event_hash")
    try:
        said = orjson.loads(str(original))
        writer = str(said["firn.writer"])
        link = Link(int(said["event.sequence"]), str(said["firn.previous"]), hash_of(str(original).encode()))
    except (ValueError, KeyError, TypeError):
        at = row["coordinates"]
        return f"the row of {row['timestamp']} ({at['topic']}, offset {at['offset']}) is no event of a trail"
    if link.hash != digest:
        return writer, link, "its hash is not that of its text (event.original)"
    return writer, link, _difference(row, fields, said)


def _difference(row: Mapping[str, Any], fields: Mapping[str, Any], said: Mapping[str, Any]) -> str | None:
    """The first column that says something else than the text that was hashed."""
    wanted = {name.replace(".", "_"): value for name, value in said.items()}
    at, message = wanted.pop("@timestamp", None), wanted.pop("message", None)
    if _moment(at) != _moment(row["timestamp"]):
        return f"its time is {row['timestamp']}, and was {at}"
    if message != row["message"]:
        return "its message is another"
    for name in sorted({*wanted, *fields} - OF_ITSELF):
        if str(wanted.get(name)) != str(fields.get(name)):
            return f"{name} is {fields.get(name)!r}, and was {wanted.get(name)!r}"
    return None


def _moment(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
