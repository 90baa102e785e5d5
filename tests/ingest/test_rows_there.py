"""Which dead letters are rows already: by the identity columns of the files that can hold them, and no
others."""

import io
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.dead_letters import replay_batch, rows_there
from ingest.dead_letters.replay_batch import Ready, batches, by_table
from ingest.dead_letters.rows_there import Identity, RowsThere, Wanted
from ingest.decode.dead_letter import DeadLetter
from lake import live_files
from lake.catalog_client import CatalogClient
from lake.commit import TableState
from lake.data_file import DataFile, describe_parquet
from lake.errors import RefusedError, UnavailableError
from lake.log_schema import IDENTITY
from lake.storage import local_path, open_storage
from lake.tenant import TableId, TenantId
from tests.query.support.log_table import TOPIC_ID, LogTable, fresh_tenant

IDS = {name: at + 6 for at, name in enumerate(IDENTITY)}
TABLE = TableId(TenantId("acme"), "logs")
BEGIN = datetime(2026, 11, 20, 9, tzinfo=UTC)
MANY = 2**40  # offsets are longs
TOPICS = st.sampled_from(["", "a", "b", "x" * 17 + "1", "x" * 17 + "2"])
PARTITIONS = st.integers(0, 2)
OFFSETS = st.one_of(st.integers(0, 4), st.integers(MANY, MANY + 2))
INDEXES = st.integers(0, 2)
ROWS = st.lists(st.tuples(TOPICS, PARTITIONS, OFFSETS, INDEXES), max_size=12)
RECORDS = st.sets(st.tuples(TOPICS, PARTITIONS, OFFSETS, st.one_of(st.none(), INDEXES)), max_size=8)


def columns(rows: Sequence[tuple[str, int, int, int]]) -> pa.Table:
    """The identity columns of rows, as files have them."""
    kinds = (pa.string(), pa.int32(), pa.int64(), pa.int32())
    cells: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    return pa.table(
        {name: pa.array(each, kind) for name, each, kind in zip(IDENTITY, cells, kinds, strict=True)}
    )


def file_of(rows: pa.Table) -> DataFile:
    """A file of these rows, as manifests describe it."""
    footers: list[Any] = []
    pq.write_table(rows, io.BytesIO(), metadata_collector=footers)
    return describe_parquet("file:///f.parquet", 1, 1, footers[0], list(IDS.values()))


@given(ROWS, RECORDS)
def test_a_record_is_a_row_under_its_coordinates(
    rows: list[tuple[str, int, int, int]], records: set[Identity]
) -> None:
    """Of a whole message any of its rows will do; no file that holds one is passed over."""
    wanted, table = Wanted(records), columns(rows)
    expected = [
        (position, record)
        for position, row in enumerate(rows)
        for record in (row, (*row[:3], None))
        if record in records
    ]
    found = list(wanted.found_in(table))
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert wanted.may_be_in(file_of(table), IDS) or not expected


@pytest.mark.parametrize(
    ("record", "may_be"),
    [
        (("b", 1, MANY + 5, None), True),
        (("b", 1, MANY + 4, 7), True),
        (("a", 1, MANY + 5, None), False),
        (("c", 1, MANY + 5, None), False),
        (("b", 0, MANY + 5, None), False),
        (("b", 2, MANY + 5, None), False),
        (("b", 1, MANY + 3, None), False),
        (("b", 1, 5, None), False),
        (("b", 1, MANY + 7, None), False),
    ],
)
def test_files_are_passed_over_by_their_bounds(record: Identity, may_be: bool) -> None:
    """A file of one partition's offsets may hold nothing but these; one without bounds may hold all."""
    file = file_of(columns([("b", 1, MANY + 4, 0), ("b", 1, MANY + 6, 0)]))
    assert Wanted({record}).may_be_in(file, IDS) == may_be
    unbounded = DataFile("file:///f.parquet", 1, 2, 1)
    assert Wanted({record}).may_be_in(unbounded, IDS)
    assert not Wanted(set()).may_be_in(unbounded, IDS)


def ready(offset: int, value: bytes | None = b"1234", table: str = "logs") -> Ready:
    """A dead letter that may be sent."""
    letter = DeadLetter(
        partition=0,
        offset=offset,
        died=BEGIN,
        reason="too_late",
        detail="",
        was_topic="t",
        was_topic_id="id",
        was_partition=0,
        was_offset=offset,
        was_at_ms=0,
        index=None,
        table=None,
        body=None,
        envelope=None,
        attempt=0,
        key=None,
        headers=(),
        value=value,
        value_bytes=None,
    )
    return Ready(letter, value, TableId(TenantId("acme"), table))


def test_batches_bound_what_waits_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """By number and by bytes; nothing is left out, and what is too large is alone."""
    monkeypatch.setattr(replay_batch, "BATCH_LETTERS", 3)
    monkeypatch.setattr(replay_batch, "BATCH_BYTES", 10)
    sizes = [1, 1, 1, 1, 8, 2, None, 11, 12, 3, 7]
    letters = [ready(at, None if size is None else bytes(size)) for at, size in enumerate(sizes)]
    found = [[len(one.value or b"") for one in batch] for batch in batches(letters)]
    assert found == [[1, 1, 1], [1, 8], [2, 0], [11], [12], [3, 7]]
    assert list(batches([])) == []


def test_records_are_looked_for_in_the_table_they_go_to() -> None:
    a, b = (TableId(TenantId("acme"), stream) for stream in ("a", "b"))
    found = by_table([ready(1, table="a"), ready(2, table="b"), ready(3, table="a"), ready(3, table="a")])
    assert found == {a: {("id", 0, 1, None), ("id", 0, 3, None)}, b: {("id", 0, 2, None)}}


def there(catalog: CatalogClient, table: LogTable, records: Collection[Identity]) -> set[Identity]:
    """Those that are rows."""
    return RowsThere(catalog, open_storage(), lambda: None).among(table.id, records)


@pytest.mark.stack
def test_rows_of_a_table_are_found_and_deleted_ones_are_not(
    catalog_client: CatalogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the files that can hold them; a table that is not there has none."""
    table = LogTable(catalog_client, fresh_tenant("there"))
    assert there(catalog_client, table, {(TOPIC_ID, 0, 0, None)}) == set()
    for hour in range(3):
        table.append([{"timestamp": BEGIN + timedelta(hours=hour)} for _ in range(10)])
    read, looked = list[str](), list[None]()

    def columns_of_file(state: TableState, file: DataFile, *rest: Any) -> Iterator[pa.Table]:
        read.append(file.uri)
        return live_files.columns_of_file(state, file, *rest)

    monkeypatch.setattr(rows_there, "columns_of_file", columns_of_file)
    looker = RowsThere(catalog_client, open_storage(), lambda: looked.append(None))
    records: set[Identity] = {(TOPIC_ID, 0, 12, None), (TOPIC_ID, 0, 14, 0), (TOPIC_ID, 0, 15, 1)}
    others: set[Identity] = {(TOPIC_ID, 1, 12, None), ("another-id", 0, 12, None), (TOPIC_ID, 0, 30, 0)}
    assert looker.among(table.id, records | others) == {(TOPIC_ID, 0, 12, None), (TOPIC_ID, 0, 14, 0)}
    (middle,) = [file for file in table.files() if there_in(file, 12)]
    assert (read, len(looked)) == ([middle.uri], 3)
    table.change({middle.uri: [2]})
    assert there(catalog_client, table, records) == {(TOPIC_ID, 0, 14, 0)}


def there_in(file: DataFile, offset: int) -> bool:
    """Whether a file has an offset of partition 0 between its bounds."""
    return Wanted({(TOPIC_ID, 0, offset, None)}).may_be_in(file, IDS)


@pytest.mark.stack
def test_a_table_that_cannot_be_looked_at_is_told(catalog_client: CatalogClient) -> None:
    """A file that is gone or damaged, one that was moved back, a catalog that is away: never as if nothing
    were there."""
    table = LogTable(catalog_client, fresh_tenant("unseen"))
    table.append([{"timestamp": BEGIN}])
    records: set[Identity] = {(TOPIC_ID, 0, 0, None)}
    (file,) = table.files()
    path = local_path(file.uri)
    kept = path.read_bytes()
    path.write_bytes(b"x" * len(kept))
    with pytest.raises(RefusedError, match="--no-look"):
        there(catalog_client, table, records)
    path.unlink()
    with pytest.raises(RefusedError, match=r"logs: .*--no-look"):
        there(catalog_client, table, records)
    path.write_bytes(kept)
    assert there(catalog_client, table, records) == records
    first = catalog_client.load_table(table.name)["metadata"]["current-snapshot-id"]
    table.append([{"timestamp": BEGIN}])
    back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": first}
    catalog_client.post(
        f"/v1/namespaces/{table.name.namespace}/tables/{table.name.name}",
        {"requirements": [], "updates": [back]},
    )
    with pytest.raises(RefusedError, match=f"resolve {table.name} --reread"):
        there(catalog_client, table, records)


@pytest.mark.parametrize(
    ("word", "answer", "expected"),
    [
        ("NoSuchTableException", 404, set()),
        ("NotFoundException", 404, RefusedError),  # the table is there, and its metadata file is gone
        ("ForbiddenException", 403, RefusedError),
    ],
)
def test_a_table_that_is_not_there_has_no_rows(
    word: str, answer: int, expected: set[Identity] | type[RefusedError]
) -> None:
    """Unlike one of which the catalog cannot, or does not want to, tell."""

    def tell(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/config":
            return httpx.Response(200, json={"defaults": {}, "overrides": {}})
        return httpx.Response(answer, json={"error": {"message": "no", "type": word, "code": answer}})

    looker = RowsThere(_client(tell), open_storage(), lambda: None)
    if isinstance(expected, set):
        assert looker.among(TABLE, {("id", 0, 1, None)}) == expected
    else:
        with pytest.raises(expected, match="--no-look"):
            looker.among(TABLE, {("id", 0, 1, None)})


@pytest.mark.long
def test_a_catalog_that_is_away_is_told() -> None:
    with pytest.raises(UnavailableError, match="--no-look"):
        RowsThere(_client(_refused), open_storage(), lambda: None).among(TABLE, {("id", 0, 1, None)})


def _client(answer: Callable[[httpx.Request], httpx.Response]) -> CatalogClient:
    return CatalogClient("http://catalog", transport=httpx.MockTransport(answer))


def _refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody listens", request=request)
