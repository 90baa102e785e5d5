"""An event of the audit trail, in the names of the Elastic Common Schema (docs/audit.md has them all).

Events of one writer are a chain. What is said of an act and the event's place in the chain are one JSON text,
`event.original`; `event.hash` is its SHA-256. The text holds the hash of the event before it
(`firn.previous`), so whoever removes an event, changes one or puts one elsewhere has to write all later ones
anew.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import BaseModel

STREAM = "audit"
ECS_VERSION = "8.17.0"
TEXT_CHARACTERS_MAX = 60_000  # of one value; a statement has 50,000
GENESIS = "0" * 64  # what the first event of a chain follows
NUMBERS = ("event.sequence", "event.duration", "http.response.status_code", "firn.rows", "firn.bytes")
# By these columns of the table: numbers, where an undeclared field would be text.
TYPED_COLUMNS: Mapping[str, str] = {name.replace(".", "_"): "long" for name in NUMBERS}
_KEY = re.compile(r"firn_([0-9a-f]{12})_[\w-]+")
_TOKEN = re.compile(r"eyJ[\w-]{10,}\.[\w-]+\.[\w-]*")
_PASSWORD = re.compile(r"(://[^/@\s:]*):[^/@\s]*@")
Fields = Mapping[str, str | int | None]


@dataclass(frozen=True, slots=True)
class Head:
    """The last event of a chain: its place, its hash, its time as text."""

    sequence: int = 0
    hash: str = GENESIS
    at: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event as it is written, and the chain's head with it. `line`: one JSON object, without an end of
    line."""

    line: bytes
    head: Head


def make_event(fields: Fields, writer: str, before: Head, now: datetime) -> Event:
    """The event that follows `before`. What is None or empty is left out; a clock that went back counts as
    standing, so that times follow the chain."""
    at, sequence = max(before.at, time_text(now)), before.sequence + 1
    said: dict[str, str | int] = {
        name: value if isinstance(value, int) else without_secrets(value)
        for name, value in fields.items()
        if value not in (None, "")
    }
    said |= {
        "@timestamp": at,
        "ecs.version": ECS_VERSION,
        "event.kind": "event",
        "event.dataset": "firn.audit",
        "event.id": f"{writer}:{sequence}",
        "event.sequence": sequence,
        "firn.writer": writer,
        "firn.previous": before.hash,
    }
    original = orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
    digest = hash_of(original)
    line = orjson.dumps({**said, "event.original": original.decode(), "event.hash": digest})
    return Event(line, Head(sequence, digest, at))


def start_of(room: str, settings: BaseModel) -> Fields:
    """What is told of the start of a service: its settings, but for its secrets."""
    return {
        "event.action": "service.start",
        "event.type": "start",
        "event.outcome": "success",
        "event.provider": room,
        "event.category": "configuration",
        "firn.parameters": settings.model_dump_json(),
        "message": f"service.start of {room} with these settings",
    }


def parameters_text(parameters: Mapping[str, Any]) -> str | None:
    """What else was asked as JSON, names in order; None where there is nothing. Whatever JSON can hold is
    taken, lone surrogates too."""
    if not parameters:
        return None
    return json.dumps(parameters, default=str, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def time_text(moment: datetime) -> str:
    """A moment in UTC with its microseconds: texts that are in order as their moments are."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def without_secrets(text: str) -> str:
    """The text without what is shaped like a key, a token, or a password in an address, and no longer than
    any value is."""
    plain = _PASSWORD.sub(r"\1@", _TOKEN.sub("eyJ...", _KEY.sub(r"firn_\1_...", text)))
    plain = plain.encode("utf-8", "replace").decode()  # lone surrogates are no JSON
    if len(plain) <= TEXT_CHARACTERS_MAX:
        return plain
    return f"{plain[:TEXT_CHARACTERS_MAX]}... ({len(plain):,} characters)"


def hash_of(original: bytes) -> str:
    """The hash of an event's text, in hexadecimal digits."""
    return hashlib.sha256(original).hexdigest()


def head_of(line: bytes) -> Head:
    """The head of a chain that ends with an event. Raises ValueError where this is none, or not as it was
    written."""
    event: Any = orjson.loads(line)
    try:
        original, digest = str(event["event.original"]), str(event["event.hash"])
        head = Head(int(event["event.sequence"]), digest, str(event["@timestamp"]))
    except (KeyError, TypeError) as error:
        raise ValueError("no event of an audit trail") from error
    if hash_of(original.encode()) != digest:
        raise ValueError("an event that was changed")
    return head
