"""Tables that the catalog makes, by the code that ingestion commits with; of their data files there is one,
which all of them name."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lake.catalog_client import CatalogClient, CommitStatus
from lake.commit import Prepared, TableState, load_state, new_table_state, prepare_append
from lake.data_file import DataFile
from lake.log_schema import LogSchema
from lake.marks import Range
from lake.storage import AnyStorage
from lake.table_layout import data_file_uri
from tests.benchmarks.fleet.shape import HOUR_MS, ROWS, Fleet
from tests.optimize.support.small_files import TOPIC, rows_of, write_small_file

TOGETHER = 1_000
COLUMNS, SHAPES = 10, 1_000  # columns of a table's own, and how many tables differ in them


@dataclass(frozen=True, slots=True)
class OwnTables:
    """Makes them and appends to them."""

    fleet: Fleet
    catalog: CatalogClient
    storage: AnyStorage
    file: DataFile

    @classmethod
    def of(cls, fleet: Fleet, catalog: CatalogClient, storage: AnyStorage) -> "OwnTables":
        """With one real file, whose counts and bounds the others have as well."""
        assert catalog.warehouse is not None
        state = new_table_state(fleet.name(0), "sample", "logs", catalog.warehouse)
        hour = fleet.now_ms // HOUR_MS
        schema = _with_columns(state, 0)
        columns = {f"own_{0:04d}_{at}": ["a value"] * ROWS for at in range(COLUMNS)}
        file = write_small_file(storage, state, schema, hour, rows_of(hour, 0, ROWS, columns))
        return cls(fleet, catalog, storage, file)

    def make(self) -> dict[str, float]:
        """Makes all, with two commits each; how many commits a second the catalog took, in requests of
        1,000."""
        commits, spent_s = 0, 0.0
        for numbers in _groups(self.fleet.own()):
            states = [self._new(number) for number in numbers]
            for begin_h in (60, 56):
                prepared = [self._append(state, begin_h, (0, 1, 2)) for state in states]
                spent_s += self.commit(prepared)
                states, commits = [each.after for each in prepared], commits + len(prepared)
        return {"batch_commits_per_s": commits / spent_s, "commits": commits}

    def change(self, numbers: Iterable[int], hours_ago: int) -> Iterator[Sequence[Prepared]]:
        """Appends two files to one hour of each, which is closed; as they are prepared, by requests."""
        for some in _groups(numbers):
            states = [state for number in some if (state := self.state(number)) is not None]
            yield [self._append(state, hours_ago, (0, 0)) for state in states]

    def state(self, number: int) -> TableState | None:
        return load_state(self.catalog, self.storage, self.fleet.name(number))

    def append_one(self, state: TableState) -> Prepared:
        """The next flush of a table: one file of the hour that is open."""
        return self._append(state, 0, (0,))

    def commit(self, prepared: Sequence[Prepared]) -> float:
        """Sends commits in one request, their manifests being written before; the seconds that the request
        took. Raises RuntimeError where one is refused."""
        self.storage.write_all([file for each in prepared for file in each.files])
        began_s = time.perf_counter()
        results = self.catalog.commit_all([each.request for each in prepared], timeout_s=300.0)
        spent_s = time.perf_counter() - began_s
        refused = [result for result in results if result.status is not CommitStatus.COMMITTED]
        if refused:
            raise RuntimeError(f"{len(refused)} commits were refused, the first: {refused[0]}")
        return spent_s

    def _new(self, number: int) -> TableState:
        assert self.catalog.warehouse is not None
        name = self.fleet.name(number)
        return new_table_state(name, name.namespace, name.name, self.catalog.warehouse)

    def _append(self, state: TableState, hours_ago: int, hours: Sequence[int]) -> Prepared:
        first = self.fleet.now_ms // HOUR_MS - hours_ago
        files = [self._file(state, first + hour) for hour in hours]
        schema = _with_columns(state, int(state.name.namespace[1:]) % SHAPES)
        at = state.marks.of(TOPIC)
        marks = state.marks.advanced({TOPIC: Range(at, at + ROWS)})
        return prepare_append(state, files, schema, marks, self.fleet.now_ms, writer="fleet")

    def _file(self, state: TableState, hour: int) -> DataFile:
        return replace(self.file, uri=data_file_uri(state.location, hour), hour=hour)


def _with_columns(state: TableState, shape: int) -> LogSchema:
    """The table's schema with columns of its own, once."""
    names = [f"own_{shape:04d}_{at}" for at in range(COLUMNS)]
    if names[0] in state.schema.by_name:
        return state.schema
    numbered = {name: (state.last_column_id + at, name) for at, name in enumerate(names, 1)}
    return state.schema.with_strings(numbered, state.schema_id_max + 1)


def _groups(numbers: Iterable[int]) -> Iterator[list[int]]:
    some: list[int] = []
    for number in numbers:
        some.append(number)
        if len(some) == TOGETHER:
            yield some
            some = []
    if some:
        yield some


def bytes_below(folder: Path) -> Mapping[str, int]:
    """Files below a folder and what they take on the disk."""
    files = blocks = 0
    for path in folder.rglob("*"):
        files += path.is_file()
        blocks += path.lstat().st_blocks
    return {"files": files, "bytes": blocks * 512}
