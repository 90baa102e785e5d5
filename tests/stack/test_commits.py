"""Commits on the real catalog: the state after one is the state that loading gives, and a wrong one is
refused whole."""

from dataclasses import replace

import pyarrow as pa
import pytest

from ingest.write.writer import write_files
from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.commit import TableState, load_state, new_table_state, prepare_append, prepare_replace
from lake.data_file import DataFile
from lake.log_schema import LogSchema
from lake.manifest import ManifestEntry, Status, read_manifest
from lake.marks import Range, TopicPartition
from lake.storage import open_storage
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack

P0, P1 = TopicPartition("id", 0), TopicPartition("id", 1)
HOUR_US = 3_600_000_000
STORAGE = open_storage()


def _new_state(line: Line) -> TableState:
    tenant = fresh("chain")
    warehouse = line.catalog.warehouse
    assert warehouse is not None
    return new_table_state(TableName(tenant, "logs"), tenant, "logs", warehouse)


def _files(
    state: TableState, schema: LogSchema, *, first: int, rows: int, **columns: list[str]
) -> list[DataFile]:
    times = pa.array([(490_000 + at % 2) * HOUR_US for at in range(rows)], pa.int64()).cast(
        pa.timestamp("us", "UTC")
    )
    table = {
        "timestamp": times,
        "observed_timestamp": times,
        "_topic": pa.array(["t"] * rows),
        "_topic_id": pa.array(["id"] * rows),
        "_topic_partition": pa.array([0] * rows, pa.int32()),
        "_offset": pa.array(range(first, first + rows), pa.int64()),
        "_index": pa.array([0] * rows, pa.int32()),
    }
    return write_files(
        STORAGE,
        state.location,
        pa.table({**table, **{name: pa.array(values) for name, values in columns.items()}}),
        schema,
    )


def _send(catalog: CatalogClient, *requests: object) -> list[CommitStatus]:
    return [result.status for result in catalog.commit_all(requests, timeout_s=30)]  # type: ignore[arg-type]


def _loaded(line: Line, name: TableName) -> TableState:
    state = load_state(line.catalog, STORAGE, name)
    assert state is not None
    return state


def test_state_after_each_commit_of_a_chain_is_what_loading_gives(line: Line) -> None:
    """Creation with rows, an append, one with a new column, one without files: nothing has to be loaded in
    between."""
    state = _new_state(line)
    grown = state.schema.with_strings({"a": (16, "/A")}, 1)
    steps = [
        (state.schema, _files(state, state.schema, first=0, rows=4), {P0: Range(0, 4)}),
        (state.schema, _files(state, state.schema, first=4, rows=3), {P0: Range(4, 7), P1: Range(0, 9)}),
        (grown, _files(state, grown, first=7, rows=2, a=["x", "y"]), {P0: Range(7, 9)}),
        (grown, [], {P1: Range(9, 20)}),
    ]
    for at, (schema, files, ranges) in enumerate(steps):
        prepared = prepare_append(state, files, schema, state.marks.advanced(ranges), now_ms=1)
        STORAGE.write_all(prepared.files)
        assert _send(line.catalog, prepared.request) == [CommitStatus.COMMITTED], at
        state, loaded = prepared.after, _loaded(line, state.name)
        # The catalog stamps its own times, and adds nothing else.
        assert replace(state, updated_ms=0, properties={}) == replace(
            loaded, updated_ms=0, properties={}, schema=state.schema
        )
        assert loaded.schema.columns == state.schema.columns
        assert loaded.schema.id == state.schema.id
    assert line.sql(
        f'SELECT _offset, a FROM "{state.name.namespace}".logs WHERE a IS NOT NULL ORDER BY 1'
    ) == [(7, "x"), (8, "y")]
    assert line.sql(f'SELECT count(*), count(DISTINCT _offset) FROM "{state.name.namespace}".logs') == [
        (9, 9)
    ]


def test_identical_request_sent_again_changes_nothing(line: Line) -> None:
    """A request whose answer was lost may be sent again: it is applied once, and its marks tell."""
    state = _new_state(line)
    prepared = prepare_append(
        state,
        _files(state, state.schema, first=0, rows=2),
        state.schema,
        state.marks.advanced({P0: Range(0, 2)}),
        now_ms=1,
    )
    STORAGE.write_all(prepared.files)
    assert _send(line.catalog, prepared.request) == [CommitStatus.COMMITTED]
    assert _send(line.catalog, prepared.request)[0] in (CommitStatus.CONFLICT, CommitStatus.COMMITTED)
    after = _loaded(line, state.name)
    assert (after.totals.rows, after.marks.of(P0), after.sequence_number) == (2, 2, 1)


def test_commits_of_one_request_stand_and_fall_alone(line: Line) -> None:
    """Of many tables in one request a stale one is refused, with nothing of it applied, and its neighbours
    pass."""
    good, stale = _new_state(line), _new_state(line)
    first = prepare_append(
        stale,
        _files(stale, stale.schema, first=0, rows=1),
        stale.schema,
        stale.marks.advanced({P0: Range(0, 1)}),
        now_ms=1,
    )
    STORAGE.write_all(first.files)
    assert _send(line.catalog, first.request) == [CommitStatus.COMMITTED]
    again = prepare_append(
        stale,
        _files(stale, stale.schema, first=1, rows=1),
        stale.schema,
        stale.marks.advanced({P0: Range(0, 5)}),
        now_ms=1,
    )
    one = prepare_append(
        good,
        _files(good, good.schema, first=0, rows=1),
        good.schema,
        good.marks.advanced({P0: Range(0, 1)}),
        now_ms=1,
    )
    STORAGE.write_all([*again.files, *one.files])
    assert _send(line.catalog, again.request, one.request) == [CommitStatus.CONFLICT, CommitStatus.COMMITTED]
    assert _loaded(line, stale.name).marks.of(P0) == 1
    assert _loaded(line, good.name).totals.rows == 1


def test_replacing_files_keeps_rows_and_marks(line: Line) -> None:
    """Two files become one: the old ones are gone from the newest snapshot, the marks stand, Trino counts as
    before."""
    state = _new_state(line)
    marks = state.marks.advanced({P0: Range(0, 4)})
    prepared = prepare_append(
        state, _files(state, state.schema, first=0, rows=4), state.schema, marks, now_ms=1
    )
    STORAGE.write_all(prepared.files)
    assert _send(line.catalog, prepared.request) == [CommitStatus.COMMITTED]
    state = prepared.after
    old = read_manifest(STORAGE.read(state.manifests[0].uri), state.manifests[0])
    new = _files(state, state.schema, first=0, rows=4)
    entries = [
        *(replace(entry, status=Status.DELETED) for entry in old),
        *(ManifestEntry(Status.ADDED, file) for file in new),
    ]
    replaced = prepare_replace(state, entries, new, [entry.file for entry in old], [], now_ms=1)
    STORAGE.write_all(replaced.files)
    assert _send(line.catalog, replaced.request) == [CommitStatus.COMMITTED]
    loaded = _loaded(line, state.name)
    assert (loaded.totals.rows, loaded.totals.files, loaded.marks) == (4, len(new), marks)
    assert line.sql(f'SELECT count(*), sum(_offset) FROM "{state.name.namespace}".logs') == [(4, 6)]
