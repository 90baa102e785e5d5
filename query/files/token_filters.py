"""The token filters of a table's files, asked which of them a search has to open.

Each is read once, by one ranged read of its data file (`lake/token_filter/block.py`), and kept in the packs
of its table (`filter_pack.py`, `pack_folder.py`). Whatever cannot be read or relied on may match: a filter
saves time and decides nothing.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np
import structlog
from numpy.typing import NDArray

from lake.errors import FirnError, RetryableError
from lake.metrics import FILTER_BYTES_READ, FILTERED_FILES, FILTERS_READ
from lake.storage import Storage, canonical
from lake.table_files import check_ordinary
from lake.table_layout import US_PER_HOUR
from lake.table_location import TableLocation
from lake.token_filter.alphabet import Alphabet, of_either
from lake.token_filter.block import LEAD_BYTES, PARQUET_MAGIC_BYTES, decode, decode_counts, head_bytes
from lake.token_filter.minute_counts import MinuteCounts
from query.files.file_index import LiveFile
from query.files.filter_pack import (
    DamagedPackError,
    PackedFile,
    PackHeader,
    Read,
    RowGroup,
    ask,
    build,
    may_hold,
    packed_file,
    parse_header,
    unpack,
)
from query.files.pack_folder import PackFolder
from query.files.token_demand import Demand, Word

log = structlog.get_logger()
US_PER_WEEK = 7 * 24 * US_PER_HOUR
READS_AT_ONCE = 16
# Filters that are read together, in memory.
READ_BYTES_MAX = 64 << 20
# A pack grows up to this before the next one of its week begins: so much is written anew for a new filter.
PACK_BYTES = 16 << 20
# What is read before a search begins, of the newest files.
FIRST_FILES = 1_000
FIRST_BYTES = 128 << 20
# Counts that are held in memory: files of months have some hundred thousand each.
COUNTS_MAX = 2_000_000
# Where a block has more before its filters, it is read once more.
HEAD_BYTES = 32 << 10
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class FilteredTable:
    """Whose filters these are. `live`: all files of the table; others need no filter any more."""

    uuid: str
    location: TableLocation
    live: Sequence[LiveFile]

    @property
    def key(self) -> str:
        """The name of the table's packs."""
        return hashlib.sha256(f"{self.uuid}\n{self.location.location}".encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class FilterEffort:
    """Files whose filters were asked, and their row groups; and how many of them are left."""

    files: int = 0
    files_left: int = 0
    row_groups: int = 0
    row_groups_left: int = 0

    def __add__(self, other: "FilterEffort") -> "FilterEffort":
        return FilterEffort(
            self.files + other.files,
            self.files_left + other.files_left,
            self.row_groups + other.row_groups,
            self.row_groups_left + other.row_groups_left,
        )


NO_FILTERS = FilterEffort()


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The files that may hold a match. `groups`: by URI the row groups that may, where not all of the file's
    do. `unread`: files whose filters are left to be read. `columns`: of each word that was asked for, the
    columns that may have it in what is left, each with its characters there, None: any; empty: any column
    may."""

    files: tuple[LiveFile, ...]
    groups: Mapping[str, Sequence[RowGroup]] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    effort: FilterEffort = NO_FILTERS
    columns: tuple[Mapping[int, Alphabet | None], ...] = ()


@dataclass(slots=True)
class _Answers:
    """What packs have said so far. `columns`: by word, of the files that have a filter."""

    demand: Demand
    wanted: frozenset[str]
    words: Sequence[Word]
    columns: list[dict[int, Alphabet | None]] = field(default_factory=list)
    without_filter: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    passed_over: set[str] = field(default_factory=set)
    groups: dict[str, Sequence[RowGroup]] = field(default_factory=dict)
    effort: FilterEffort = NO_FILTERS

    def take(self, header: PackHeader, read: Read) -> None:
        """Asks one pack. Raises DamagedPackError."""
        is_new = [uri in self.wanted and uri not in self.known for uri in header.uris]
        asked = np.array(is_new, bool)[header.file_of]
        left = ask(header, read, self.demand) & asked
        for word, columns in zip(self.words, self.columns, strict=True):
            for column, alphabet in may_hold(header, read, left, word).items():
                columns[column] = of_either(columns.get(column, 0), alphabet)
        before, after = (np.bincount(header.file_of[each], minlength=len(is_new)) for each in (asked, left))
        new = {uri for uri, each in zip(header.uris, is_new, strict=True) if each}
        self.known |= new
        self.without_filter |= new - header.filtered
        self.passed_over |= {header.uris[at] for at in np.flatnonzero((before > 0) & (after == 0)).tolist()}
        is_cut = (after > 0) & (after < before)
        if is_cut.any():
            self.groups |= header.groups_of(np.flatnonzero(left & is_cut[header.file_of]))
        self.effort += FilterEffort(*(int(each) for each in _counts(before, after)))


class TokenFilters:
    """Thread-safe."""

    def __init__(self, storage: Storage, packs: PackFolder) -> None:
        self._storage = storage
        self._packs = packs
        self._lock = threading.Lock()
        self._reading: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    def narrow(
        self,
        table: FilteredTable,
        files: Sequence[LiveFile],
        demand: Demand,
        *,
        words: Sequence[Word] = (),
        is_first: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> Narrowed:
        """Leaves out the files and row groups that cannot have what is demanded. `words`: what is asked for
        in many columns. Filters that are in no pack are read; where a search `is_first` planned some of them,
        those of the newest files. `check` is called now and then and may raise."""
        filtered = [file for file in files if file.filter_bytes]
        answers = _Answers(demand, frozenset(file.uri for file in filtered), words, [{} for _ in words])
        self._ask_packs(table.key, filtered, answers)
        missing = [file for file in filtered if file.uri not in answers.known]
        if missing:
            self._read_missing(table, _first(missing) if is_first else missing, answers, check)
        effort = answers.effort
        FILTERED_FILES.labels("kept").inc(effort.files_left)
        FILTERED_FILES.labels("passed_over").inc(effort.files - effort.files_left)
        unread = answers.wanted - answers.known
        all_told = len(filtered) == len(files) and not unread and not answers.without_filter
        return Narrowed(
            tuple(file for file in files if file.uri not in answers.passed_over),
            answers.groups,
            unread,
            effort,
            tuple(answers.columns) if all_told else (),
        )

    def counts(self, location: TableLocation, files: Sequence[LiveFile]) -> dict[str, MinuteCounts]:
        """Rows by minute and level of those files that carry them, by URI; no more than COUNTS_MAX together,
        whatever the files say."""
        left, lock = COUNTS_MAX, threading.Lock()

        def read(file: LiveFile) -> MinuteCounts | None:
            nonlocal left
            head = self._storage.read_range(file.uri, PARQUET_MAGIC_BYTES, min(HEAD_BYTES, file.filter_bytes))
            if len(head) < head_bytes(head[:LEAD_BYTES]) <= file.filter_bytes:
                head = self._storage.read_range(file.uri, PARQUET_MAGIC_BYTES, head_bytes(head[:LEAD_BYTES]))
            FILTER_BYTES_READ.inc(len(head))
            counts = decode_counts(head)
            if counts is None or int(counts[:, 2].sum()) != file.rows:
                return None
            with lock:
                if len(counts) > left:
                    return None
                left -= len(counts)
            return counts

        found = self._each(location, [file for file in files if file.filter_bytes], read)
        return {file.uri: counts for file, counts in found if counts is not None}

    def forget(self, uris: Sequence[str]) -> None:
        """Removes the filters of files whose rows must not stay anywhere."""
        self._packs.forget(uris)

    def _ask_packs(self, table: str, files: Sequence[LiveFile], answers: _Answers) -> None:
        for week in sorted({_week_of(file) for file in files}):
            for path in self._packs.packs(table, week):
                with suppress(DamagedPackError, FileNotFoundError), self._packs.opened(path, table) as pack:
                    answers.take(*pack)

    def _read_missing(
        self,
        table: FilteredTable,
        files: list[LiveFile],
        answers: _Answers,
        check: Callable[[], None],
    ) -> None:
        turn = self._turn(table.key)
        with turn.lock:
            self._ask_packs(table.key, files, answers)  # who had the turn before may have read them
            left = [file for file in files if file.uri not in answers.known]
            for batch in _batches(left):
                check()
                self._keep(table, self._read(table.location, batch), answers)
            if left:
                self._sweep(table)

    def _read(self, location: TableLocation, files: Sequence[LiveFile]) -> dict[int, list[PackedFile]]:
        """By week."""

        def read(file: LiveFile) -> PackedFile:
            block = self._storage.read_range(file.uri, PARQUET_MAGIC_BYTES, file.filter_bytes)
            FILTER_BYTES_READ.inc(len(block))
            found = packed_file(file.uri, file.rows, decode(block))
            FILTERS_READ.labels("usable" if found.groups else "unusable").inc()
            return found

        by_week: dict[int, list[PackedFile]] = {}
        for file, found in self._each(location, files, read):
            by_week.setdefault(_week_of(file), []).append(found)
        return by_week

    def _each(
        self, location: TableLocation, files: Sequence[LiveFile], read: Callable[[LiveFile], _Read]
    ) -> Iterator[tuple[LiveFile, _Read]]:
        """What is read of each file that can be read. Storage that does not answer is not asked again and
        again."""
        folders: set[str] = set()
        is_down = threading.Event()

        def one(file: LiveFile) -> _Read | None:
            if is_down.is_set():
                return None
            try:
                check_ordinary(location, file.uri, folders)
                return read(file)
            except FirnError as error:
                if isinstance(error, RetryableError):
                    is_down.set()
                FILTERS_READ.labels("failed").inc()
                log.warning("query.token_filter_failed", file=file.uri, error=str(error))
                return None

        if all(canonical(file.uri).startswith("file:") for file in files):
            found = [one(file) for file in files]
        else:
            with ThreadPoolExecutor(READS_AT_ONCE) as pool:
                found = list(pool.map(one, files))
        for file, each in zip(files, found, strict=True):
            if each is not None:
                yield file, each

    def _keep(
        self, table: FilteredTable, by_week: Mapping[int, Sequence[PackedFile]], answers: _Answers
    ) -> None:
        """Asks filters that were just read, and puts them into packs."""
        live = frozenset(file.uri for file in table.live)
        for week, files in by_week.items():
            before, packed = self._last_pack(table.key, week, live)
            uris = {file.uri for file in files}
            files = [*(file for file in packed if file.uri not in uris), *files]
            pack = build(table.key, files)
            answers.take(parse_header(_in_memory(pack), table.key, len(pack)), _in_memory(pack))
            try:
                self._packs.write(table.key, week, pack, [file.uri for file in files], before)
            except OSError as error:  # they are read again
                log.warning("query.filter_pack_not_kept", table=table.key, error=str(error))

    def _last_pack(self, table: str, week: int, live: frozenset[str]) -> tuple[list[Path], list[PackedFile]]:
        """A pack of the week that has room, and what is live in it."""
        for path in self._packs.packs(table, week):
            with (
                suppress(DamagedPackError, FileNotFoundError),
                self._packs.opened(path, table) as (header, read),
            ):
                if header.size_bytes < PACK_BYTES:
                    return [path], [file for file in unpack(header, read) if file.uri in live]
        return [], []

    def _sweep(self, table: FilteredTable) -> None:
        """Removes the packs of weeks of which the table has no file any more."""
        for week in set(self._packs.weeks(table.key)) - {_week_of(file) for file in table.live}:
            for path in self._packs.packs(table.key, week):
                self._packs.remove(path)

    def _turn(self, table: str) -> "_Turn":
        """One search at a time reads the filters of a table: the others need the same ones."""
        with self._lock:
            return self._reading.setdefault(table, _Turn())


class _Turn:
    def __init__(self) -> None:
        self.lock = threading.Lock()


def _first(files: Sequence[LiveFile]) -> list[LiveFile]:
    """The newest files, as many as are worth waiting for."""
    newest = sorted(files, key=lambda file: -file.last_us)[:FIRST_FILES]
    held = accumulate(file.filter_bytes for file in newest)
    return [file for file, size in zip(newest, held, strict=True) if size <= FIRST_BYTES]


def _batches(files: Sequence[LiveFile]) -> Iterator[list[LiveFile]]:
    batch, held = list[LiveFile](), 0
    for file in files:
        if batch and held + file.filter_bytes > READ_BYTES_MAX:
            yield batch
            batch, held = [], 0
        batch.append(file)
        held += file.filter_bytes
    if batch:
        yield batch


def _counts(before: NDArray[np.int64], after: NDArray[np.int64]) -> tuple[int, int, int, int]:
    """Of row groups by file: files, files left, row groups, row groups left."""
    return (
        int(np.count_nonzero(before)),
        int(np.count_nonzero(after)),
        int(before.sum()),
        int(after.sum()),
    )


def _week_of(file: LiveFile) -> int:
    return file.first_us // US_PER_WEEK


def _in_memory(pack: bytes) -> Read:
    return lambda offset, length: pack[offset : offset + length]
