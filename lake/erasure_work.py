"""Erasures as `query` asks `optimize` for them, in the catalog's work list: which rows of which files of a
table go, and what came of it.

    query      saves a request                               task `optimize.erasure:ID`
    optimize   notes before each commit what it is about     task `optimize.erasure-answer:ID`
               to take away; saves the answer; removes the request
    query      takes the answer in, searches again, and removes the answer

A request names rows by their place in a file: no word of anybody's query is in the catalog. The list takes
keys that are bound to no namespace alone; whose tables a caller may ask for, `query` checks before. An answer
that nobody takes in goes after a week.
"""

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from lake.catalog_client import CatalogClient, TableName
from lake.errors import ProtocolError, RefusedError
from lake.extras_client import ExtrasClient, Task
from lake.holds import moment_of
from lake.settings import ControlSettings

REQUEST_KIND = "optimize.erasure"
ANSWER_KIND = "optimize.erasure-answer"
# Of the places of rows in one request, as they are stored; at least one file is in it all the same.
ROWS_BYTES_MAX = 4 * 1024 * 1024
# Of the names of files in an answer: of some 200,000 files.
NAMES_BYTES_MAX = 8 * 1024 * 1024
# A file of more rows is none of Firn's: a bit each would be 128 MiB.
ROWS_OF_A_FILE_MAX = 2**30
ANSWER_KEPT_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """Rows that are to go from a table, and every snapshot with them that reaches the files they are in.

    `rows`: by the URI of a file the places of its rows (0: the first), packed; files that are not live when
    they are read are left out. `grace_ms`: how long running queries may still read the old files. `start`,
    `end`: no row is outside of this range of event time, None for open.
    """

    id: str
    table: TableName
    table_uuid: str
    rows: Mapping[str, str]
    grace_ms: int
    start: datetime | None = None
    end: datetime | None = None

    def places(self, uri: str) -> list[int]:
        """The places of the rows of one file. Raises ProtocolError."""
        return unpack_rows(self.rows[uri])

    def to_task(self) -> Task:
        record = {
            "table": self.table.to_json(),
            "table-uuid": self.table_uuid,
            "rows": dict(self.rows),
            "grace-ms": self.grace_ms,
            "from": None if self.start is None else self.start.isoformat(),
            "until": None if self.end is None else self.end.isoformat(),
        }
        return Task(f"{REQUEST_KIND}:{self.id}", REQUEST_KIND, "asked", 0, record)

    @classmethod
    def of(cls, task: Task) -> "ErasureRequest":
        """The request that a task holds. Raises ProtocolError."""
        try:
            return cls(
                task.id.removeprefix(f"{REQUEST_KIND}:"),
                TableName.parse(task.record["table"]),
                str(task.record["table-uuid"]),
                {str(uri): str(packed) for uri, packed in task.record["rows"].items()},
                int(task.record["grace-ms"]),
                moment_of(task.record.get("from")),
                moment_of(task.record.get("until")),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the task {task.id} is no request for an erasure: {error!r}") from error


@dataclass(frozen=True, slots=True)
class ErasureAnswer:
    """What came of a request. `done`: `snapshot_id` is the only snapshot that was left (None: the table has
    none), or there is a `problem`; `failed`: an error ended it, `problem` says which.

    `files_written` of `files` are the progress. `noted`: manifest lists of snapshots that go, noted before
    the commit that takes them away. `queued`: files that wait for their deletion; of very many only the
    first.
    """

    id: str
    state: Literal["working", "done", "failed"] = "working"
    files: int = 0
    files_written: int = 0
    rows: int = 0
    files_rewritten: int = 0
    files_removed: int = 0
    snapshots_expired: int = 0
    snapshot_id: int | None = None
    noted: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    files_queued: int = 0
    problem: str | None = None
    version: int = field(default=0, compare=False)
    changed_ms: int = field(default=0, compare=False)

    def to_task(self) -> Task:
        record = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("id", "state", "version", "changed_ms")
        }
        record["queued"] = pack_names(self.queued)
        return Task(f"{ANSWER_KIND}:{self.id}", ANSWER_KIND, self.state, self.version, record)

    @classmethod
    def of(cls, task: Task) -> "ErasureAnswer":
        """The answer that a task holds. Raises ProtocolError."""
        record = dict(task.record)
        try:
            noted, queued = tuple(map(str, record.pop("noted"))), tuple(unpack_names(record.pop("queued")))
            answer = cls(task.id.removeprefix(f"{ANSWER_KIND}:"), **record, noted=noted, queued=queued)
            state: Any = task.state
            return replace(answer, state=state, version=task.version, changed_ms=task.changed_ms)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the task {task.id} is no answer about an erasure: {error!r}") from error


def work_list_of(catalog: CatalogClient, control: ControlSettings) -> CatalogClient:
    """Who keeps the work list: the catalog, or beside another REST catalog the control service."""
    if not control.uri:
        return catalog
    token = control.token.get_secret_value() if control.token else None
    return CatalogClient(control.uri, token=token, control=True)


class ErasureWork:
    """The part of the catalog's work list that erasures take. `lease`: the leader's, `name:token`; a stale
    one changes nothing. All methods raise what `ExtrasClient` raises."""

    def __init__(self, catalog: CatalogClient, lease: str | None = None) -> None:
        self._extras = ExtrasClient(catalog)
        self._lease = lease

    def ask(self, request: ErasureRequest) -> None:
        """Puts a request on the list."""
        self._save(request.to_task())

    def requests(self) -> Iterator[Task]:
        """What is asked for, each read when its turn comes: it may be large."""
        return self._extras.tasks(REQUEST_KIND, page_size=1)

    def answer(self, request_id: str) -> ErasureAnswer | None:
        """What came of a request so far; None: nobody has begun. Raises ProtocolError."""
        task = self._extras.find_task(ANSWER_KIND, f"{ANSWER_KIND}:{request_id}")
        return None if task is None else ErasureAnswer.of(task)

    def has_request(self, request_id: str) -> bool:
        """Whether a request is on the list."""
        return any(task.id == f"{REQUEST_KIND}:{request_id}" for task in self.requests())

    def save(self, answer: ErasureAnswer) -> int:
        """Writes an answer over the version last read; its new version. Raises RefusedError where somebody
        else has written it meanwhile."""
        return self._save(answer.to_task())

    def drop_request(self, request_id: str) -> None:
        """Takes a request off the list, known or not."""
        self._extras.remove_task(f"{REQUEST_KIND}:{request_id}")

    def drop_answer(self, request_id: str) -> None:
        """Takes an answer off the list, known or not."""
        self._extras.remove_task(f"{ANSWER_KIND}:{request_id}")

    def drop_old_answers(self, now_ms: int) -> None:
        """Takes answers off the list that nobody has taken in for a week."""
        for task in list(self._extras.tasks(ANSWER_KIND)):
            if task.changed_ms < now_ms - ANSWER_KEPT_MS:
                self._extras.remove_task(task.id)

    def _save(self, task: Task) -> int:
        (version,) = self._extras.save_tasks([task], lease=self._lease)
        if version is None:
            raise RefusedError(f"somebody else has changed the task {task.id}")
        return version


def pack_rows(places: Sequence[int]) -> str:
    """Places of rows as text: a bit for each row, compressed."""
    bits = bytearray(max(places, default=-1) // 8 + 1)
    for place in places:
        bits[place // 8] |= 1 << place % 8
    return base64.b64encode(zlib.compress(bits)).decode()


def unpack_rows(text: str) -> list[int]:
    """The places that `pack_rows` packed, in order. Raises ProtocolError."""
    bits = _unpacked(text, ROWS_OF_A_FILE_MAX // 8)
    return [at * 8 + bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1]


def pack_names(names: Sequence[str]) -> str:
    """Names of files as text, compressed: as many of the first as fit."""
    while True:
        packed = base64.b64encode(zlib.compress("\n".join(names).encode())).decode()
        if len(packed) <= NAMES_BYTES_MAX:
            return packed
        names = names[: len(names) // 2]


def unpack_names(text: str) -> list[str]:
    """The names that `pack_names` packed. Raises ProtocolError."""
    return list(filter(None, _unpacked(text, NAMES_BYTES_MAX * 100).decode().split("\n")))


def _unpacked(text: str, bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(base64.b64decode(text, validate=True), bytes_max)
    except (binascii.Error, zlib.error) as error:
        raise ProtocolError(f"a list in a task cannot be unpacked: {error}") from error
    if not unpacker.eof:
        raise ProtocolError(f"a list in a task is cut off, or unpacks to more than {bytes_max:,} bytes")
    return data
