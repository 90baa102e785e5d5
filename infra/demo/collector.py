"""Ships the live logs of the stack's own services: log files in, records of the tenant `firn` out, one stream
a service.

Positions are saved by `commit`, after the records were delivered: a crash in between repeats records, it
never loses one.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from infra.demo.atomic_file import write_atomically
from infra.demo.file_tail import FileTail, Position, TailedLine
from infra.demo.record import GOOD, JSON_TOPIC, STREAM_HEADER, TENANT_HEADER, TEXT_TOPIC, DemoRecord
from lake.clock import Clock, epoch_ms
from lake.errors import ProtocolError

OWN_TENANT = "firn"
# A stack trace may still grow: its record waits until the next one begins, or until its file has been quiet
# for so long.
QUIET_S = 1.0
# Beyond this a record of many lines is cut, so that it stays far below what a broker takes.
RECORD_BYTES_MAX = 512 * 1024

# How a text record begins: with a date (Kafka's log4j layout, Trino), or with thread and level
# (slf4j-simple). Whatever does not begin so (frames, causes, dumps of settings) belongs to the record before
# it.
_HEAD = re.compile(rb"^\[?\d{4}-\d\d-\d\d[T ]\d\d:|^\[[^\]]+\] (?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_INDENTED = (b" ", b"\t", b"Caused by:", b"Suppressed:")


@dataclass(slots=True)
class _Open:
    """A text record that may still get lines."""

    start: Position
    lines: list[bytes]
    size_bytes: int
    has_head: bool
    grown_s: float


@dataclass(slots=True)
class _Source:
    service: str
    path: Path
    tail: FileTail
    committed: Position | None = None
    open: _Open | None = None
    # Complete records with their topics, in the order of the file.
    ready: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def position(self) -> Position:
        """From here on nothing has been handed out."""
        return self.tail.position if self.open is None else self.open.start


class Collector:
    """Tails one log file a service. Lines that are JSON objects go to the JSON topic as they are, all else to
    the text topic.

    `positions_file` keeps where reading goes on after a restart; without it each start reads the files from
    their beginning.
    """

    def __init__(
        self, log_files: Mapping[str, Path], clock: Clock, positions_file: Path | None = None
    ) -> None:
        self._clock = clock
        self._positions_file = positions_file
        saved = _load_positions(positions_file)
        self._sources = [
            _Source(service, path, FileTail(path, saved.get(f"{service}:{path}")))
            for service, path in log_files.items()
        ]

    def poll(self, *, at_end: bool = False) -> list[DemoRecord]:
        """The records that became complete since the last call; with `at_end` also those that might still
        grow."""
        records: list[DemoRecord] = []
        for source in self._sources:
            self._advance(source, at_end=at_end)
            records += self._records(source)
        return records

    def commit(self) -> None:
        """Saves, atomically, that everything handed out so far need not be read again. Call it after the
        records were delivered."""
        if self._positions_file is None:
            return
        positions = {f"{source.service}:{source.path}": asdict(source.position) for source in self._sources}
        write_atomically(self._positions_file, orjson.dumps(positions, option=orjson.OPT_INDENT_2))

    def close(self) -> None:
        """Closes the files."""
        for source in self._sources:
            source.tail.close()

    def _advance(self, source: _Source, *, at_end: bool) -> None:
        while lines := source.tail.read_lines(at_end=at_end):
            for line in lines:
                self._add(source, line)
        if source.open is not None and (at_end or self._clock.monotonic_s() - source.open.grown_s >= QUIET_S):
            _finish(source)

    def _add(self, source: _Source, line: TailedLine) -> None:
        if is_json_object(line.content):
            _finish(source)
            source.ready.append((JSON_TOPIC, line.content))
            return
        if source.open is not None and _continues(source.open, line.content):
            source.open.lines.append(line.content)
            source.open.size_bytes += len(line.content) + 1
            source.open.grown_s = self._clock.monotonic_s()
            return
        _finish(source)
        if line.content.strip():
            head = _HEAD.match(line.content) is not None
            source.open = _Open(
                line.start, [line.content], len(line.content), head, self._clock.monotonic_s()
            )

    def _records(self, source: _Source) -> Iterable[DemoRecord]:
        headers = ((TENANT_HEADER, OWN_TENANT.encode()), (STREAM_HEADER, source.service.encode()))
        shipped_ms = epoch_ms(self._clock.now())
        complete, source.ready = source.ready, []
        for topic, value in complete:
            readable = _is_utf8(value)
            yield DemoRecord(
                topic=topic,
                key=source.service.encode(),
                value=value,
                headers=headers,
                timestamp_ms=shipped_ms,
                tenant=OWN_TENANT,
                expected="row" if readable else "dead_letter",
                # Firn's own events always carry a timestamp; another program's object without one gets
                # Kafka's, and says so.
                errors_expected=topic == JSON_TOPIC and b'"timestamp"' not in value,
                kind=GOOD if readable else "invalid_utf8",
            )


def is_json_object(line: bytes) -> bool:
    """Whether a line is one whole JSON object."""
    if not line.startswith(b"{"):
        return False
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _continues(record: _Open, line: bytes) -> bool:
    if record.size_bytes + len(line) >= RECORD_BYTES_MAX:
        return False
    if record.has_head:
        return _HEAD.match(line) is None
    # Before the first head of a file (what a JVM prints at its start) only indentation tells that a record
    # goes on. A Python traceback has indented lines too, and ends with one that is not.
    return (
        line.startswith(_INDENTED)
        or not line
        or record.lines[0].startswith(b"Traceback (most recent call last)")
    )


def _finish(source: _Source) -> None:
    if source.open is not None:
        source.ready.append((TEXT_TOPIC, b"\n".join(source.open.lines).rstrip()))
        source.open = None


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _load_positions(positions_file: Path | None) -> dict[str, Position]:
    if positions_file is None or not positions_file.exists():
        return {}
    try:
        return {name: Position(**saved) for name, saved in orjson.loads(positions_file.read_bytes()).items()}
    except (orjson.JSONDecodeError, TypeError, AttributeError) as error:
        raise ProtocolError(
            f"{positions_file} holds no positions of log files ({error}); delete it to read the logs from "
            "their beginning"
        ) from error
