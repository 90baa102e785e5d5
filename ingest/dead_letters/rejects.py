"""Dead letters of a backfill: each once, however often it is run, in the dead-letter topic or, where there is
no Kafka, in a file."""

import base64
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from ingest.dead_letters.dead_letter import Letters, dead_part
from ingest.decode.dead_letter import read_letter
from ingest.kafka.kafka_reader import KafkaReader
from ingest.kafka.topic_mac import TopicMac
from ingest.model.source import Source
from ingest.route.buffer import RawRecord
from lake.errors import PrerequisiteError, Rejected, SettingsError, UnavailableError
from lake.settings import IngestSettings

Identity = tuple[str, int, int, int | None]  # topic id, partition, offset, index
_INDEX_BITS = 24
_BEGINNING = b'{"reason":'


class OnceLetters:
    """Passes on dead letters that are not there yet. Those that are there are read when the first dead letter
    is sent: most backfills have none.

    `known` gives the identities of all dead letters that are there. One takes about 60 bytes of memory, as
    far as it is of what is read.
    """

    def __init__(
        self, letters: Letters, known: Callable[[], Iterable[Identity]], sources: Iterable[str]
    ) -> None:
        self._letters = letters
        self._known = known
        self._sources = frozenset(sources)
        self._there: dict[tuple[str, int], set[int]] | None = None
        self.sent = self.there_already = 0

    def send(self, source: Source, record: RawRecord, rejected: Rejected, table: str | None) -> None:
        """Sends a dead letter, unless it was sent by an earlier run."""
        if self._there is None:
            self._there = defaultdict(set)
            for topic_id, partition, number, place in self._known():
                if topic_id in self._sources:
                    self._there[topic_id, partition].add(_packed(number, place))
        _, index = dead_part(record, rejected)
        if _packed(record.offset, index) in self._there.get((source.topic_id, source.partition), ()):
            self.there_already += 1
            return
        self.sent += 1
        self._letters.send(source, record, rejected, table)

    def flush(self, tables: Collection[str] | None = None) -> None:
        """Returns when every dead letter is durable; with `tables`, every one of these and of no table."""
        self._letters.flush(tables)

    def mark(self) -> int:
        """A mark behind every dead letter so far, for `reached`."""
        return self._letters.mark()

    def reached(self, mark: int, timeout_s: float) -> bool:
        """Whether every dead letter before a mark is durable, at the latest when the time is over."""
        return self._letters.reached(mark, timeout_s)


def _packed(offset: int, index: int | None) -> int:
    return offset << _INDEX_BITS | (0 if index is None else index + 1)


def in_topic(reader: KafkaReader, settings: IngestSettings) -> Iterator[Identity]:
    """The identities of the dead letters in the dead-letter topic."""
    mac, ends = TopicMac(settings), reader.ends(reader.partitions([settings.internal_topics.dead_letters]))
    for message in reader.read({partition: (end.start, end.end) for partition, end in ends.items()}):
        if (letter := read_letter(message, mac)) is not None:
            yield letter.was_topic_id, letter.was_partition, letter.was_offset, letter.index


class RejectsFile:
    """A file of dead letters, one JSON object a line, with what a dead letter of the topic says, named as
    `dead-letters show --json` names it."""

    def __init__(self, path: Path) -> None:
        """Opens the file to append to it; half a line at its end, which a crash has left, is taken away.
        Raises PrerequisiteError, SettingsError."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab+")
            self._file.seek(0)
            if not _BEGINNING.startswith(self._file.read(len(_BEGINNING))):
                raise SettingsError(
                    f"{path} holds something else than dead letters; give --rejects a file of its own"
                )
            self._file.truncate(_end_of_last_line(self._file))
        except OSError as error:
            raise PrerequisiteError(
                f"{path} cannot be written ({error.strerror}); give --rejects another place"
            ) from error

    def known(self) -> Iterator[Identity]:
        """The identities of the dead letters that are there. Raises SettingsError where it holds anything
        else."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    letter = orjson.loads(line)
                    yield letter["topic_id"], letter["partition"], letter["offset"], letter["index"]
                except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                    raise SettingsError(
                        f"{self.path} line {number} is no dead letter; give --rejects a file of its own"
                    ) from error

    def send(self, source: Source, record: RawRecord, rejected: Rejected, table: str | None) -> None:
        """Writes one dead letter, without key and headers, which records of files do not have; `flush` makes
        sure of it. Raises UnavailableError."""
        value, index = dead_part(record, rejected)
        where = {
            "topic": source.topic,
            "topic_id": source.topic_id,
            "partition": source.partition,
            "offset": record.offset,
            "index": index,
        }
        why = {
            "reason": rejected.reason.value,
            "detail": rejected.detail,
            "timestamp_ms": record.timestamp_ms,
            "table": table,
        }
        self._try(
            lambda: self._file.write(
                orjson.dumps({**why, **where, **_content(value)}, option=orjson.OPT_APPEND_NEWLINE)
            )
        )

    def flush(self, _: Collection[str] | None = None, /) -> None:
        """Returns when every dead letter is on the disk, whosever. Raises UnavailableError."""
        self._try(self._file.flush)
        self._try(lambda: os.fsync(self._file.fileno()))

    def mark(self) -> int:
        """A mark, of which there is no need: `reached` makes sure of all."""
        return 0

    def reached(self, _: int, __: float, /) -> bool:
        """Returns when every dead letter is on the disk. Raises UnavailableError."""
        self.flush()
        return True

    def _try(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}; mend that and run it again") from error


def _end_of_last_line(file: Any) -> int:
    """The bytes of the file that are whole lines."""
    at = file.seek(0, os.SEEK_END)
    while at > 0:
        start = max(0, at - 65_536)
        file.seek(start)
        found = file.read(at - start).rfind(b"\n")
        if found >= 0:
            return int(start + found + 1)
        at = start
    return 0


def _content(value: bytes | None) -> dict[str, str | None]:
    encoded = None if value is None else base64.b64encode(value).decode()
    try:
        return {"value": None if value is None else value.decode(), "value_base64": encoded}
    except UnicodeDecodeError:
        return {"value": None, "value_base64": encoded}
