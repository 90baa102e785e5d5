"""Records that brought about errors nobody had foreseen, and what becomes of the next one that does."""

import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from ingest.convert import converter
from ingest.convert.converter import convert
from ingest.convert.culprits import CULPRITS_MAX
from ingest.convert.work import ConverterLimits, Work
from ingest.model.source import Source
from ingest.route.buffer import RawRecord, TableBuffer
from ingest.route.routes import Routes
from ingest.write.writer import write_files
from lake.errors import Reason, Rejected
from lake.log_schema import new_log_schema
from lake.settings import IngestSettings, TopicSettings
from lake.storage import local_path, open_storage
from lake.tenant import TableId, TenantId
from tests.ingest.support.conversion import ANY_TIME, KAFKA_MS, TABLE, converted, rows_of, without_core
from tests.ingest.support.definition import check

TIME = b'"ts":1795210000000'
DIGITS = b"9" * 5_000
PLAIN = b'{%b,"n":1}' % TIME


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{%b,"n":%b}' % (TIME, DIGITS), id="member"),
        pytest.param(b'{%b,"n":[1,%b]}' % (TIME, DIGITS), id="array"),
        pytest.param(b'{%b,"n":NaN,"m":-%b}' % (TIME, DIGITS), id="beside NaN"),
        pytest.param(b'{%b,"n":%b.5e5}' % (TIME, DIGITS), id="fraction"),
    ],
)
@pytest.mark.parametrize("others", [0, 20, 800])
def test_numbers_of_any_length_are_stored_as_they_are_spelled(
    monkeypatch: pytest.MonkeyPatch, body: bytes, others: int
) -> None:
    """Python's own integers end at 4,300 digits."""
    bodies = [*[PLAIN] * others, body]
    found = converted(bodies)
    assert not found.rejected
    stored = rows_of(found)[others, 0]
    assert DIGITS.decode() in stored["m" if "m" in stored else "n"]
    without_core(monkeypatch)
    assert rows_of(converted(bodies)) == rows_of(found)


@pytest.mark.parametrize("rule", ["field:tenant", "field:n"])
def test_numbers_of_any_length_do_not_stop_routing(rule: str) -> None:
    """Whether the number names the tenant, or stands beside what does."""
    routes = Routes(IngestSettings(topics=(TopicSettings(name="t", tenant=(rule,)),)))
    found = routes.target("t", None, (), b'{"tenant":"a","n":%b,"m":NaN}' % DIGITS)
    assert found == TableId(TenantId("a"), "logs") if rule == "field:tenant" else isinstance(found, Rejected)


def test_an_error_while_routing_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody has foreseen."""
    monkeypatch.setattr("ingest.route.router.Router.target", lambda *_: dict[str, str]()["nobody"])
    found = Routes(IngestSettings(topics=(TopicSettings(name="t"),))).target("t", None, (), b"{}")
    assert isinstance(found, Rejected)
    assert found.reason is Reason.UNSTORABLE


def _together(poison: bytes) -> object:
    whole = converter._convert_together

    def convert(work: Work, places: object) -> None:
        whole(work, places)  # type: ignore[arg-type]
        if any(poison in work.buffer.values[at] for at in places):  # type: ignore[attr-defined]
            raise ZeroDivisionError("a fault of ours")

    return convert


@pytest.mark.parametrize("bad", [{0}, {999}, {3, 4, 500, 513}], ids=["first", "last", "some"])
def test_the_few_that_bring_about_an_error_are_dead_letters(
    monkeypatch: pytest.MonkeyPatch, bad: set[int]
) -> None:
    """All others are rows, once."""
    bodies = [
        b'{%b,"n":%d,"poison":1}' % (TIME, at) if at in bad else b'{%b,"n":%d}' % (TIME, at)
        for at in range(1_000)
    ]
    monkeypatch.setattr(converter, "_convert_together", _together(b"poison"))
    monkeypatch.setattr(converter, "CHUNK_ROWS", 512)
    with capture_logs() as told:
        found = converted(bodies)
    assert {entry["offset"] for entry in told} == bad
    assert {(at, rejected.reason) for at, rejected in found.rejected} == {
        (at, Reason.UNSTORABLE) for at in bad
    }
    assert set(rows_of(found)) == {(at, 0) for at in range(len(bodies)) if at not in bad}


@pytest.mark.parametrize("count", [1, 2, CULPRITS_MAX + 10])
def test_an_error_that_all_bring_about_is_the_tables(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """It is raised, so that the table is parked: its columns are at fault, or the program, and a node that is
    mended stores the records."""
    monkeypatch.setattr(converter, "_convert_together", _together(b"poison"))
    with pytest.raises(ZeroDivisionError):
        converted([b'{%b,"poison":1}' % TIME] * count)


@pytest.mark.parametrize(
    "wild_ms", [1_795_210_000_000_000_000, 9_300_000_000_000_000, -(1 << 62), 253_402_300_800_000]
)
@pytest.mark.parametrize("others", [0, 800])
def test_kafka_timestamps_beyond_the_calendar_are_told(wild_ms: int, others: int) -> None:
    """A producer that sends nanoseconds: neither a wrong time nor an error."""
    found = converted([PLAIN] * (others + 1), times_ms=[*[KAFKA_MS] * others, wild_ms])
    assert [(at, rejected.reason) for at, rejected in found.rejected] == [(others, Reason.UNDECODABLE)]
    assert len(rows_of(found)) == others


def test_what_the_table_has_committed_is_no_dead_letter_again() -> None:
    """After a restart, messages below the marks come once more."""
    buffer = TableBuffer(TABLE, 0.0)
    for offset in range(3):
        buffer.add(*RawRecord(0, offset, 1 << 60, None, (), PLAIN))
    limits = ConverterLimits(100, 1_000, ANY_TIME)
    found = convert(buffer, [Source("topic", "id", 0, "auto", "UTC")], new_log_schema(), [2], limits)
    assert (found.committed, [at for at, _ in found.rejected]) == (2, [2])


@pytest.mark.long
def test_keys_that_no_other_record_has_go_beyond_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of things as keys: the columns are full at once, and every value is kept."""
    bodies = [
        b'{%b,"by":{%b}}' % (TIME, b",".join(b'"k%d-%d":%d' % (at, key, key) for key in range(40)))
        for at in range(300)
    ]
    limits = ConverterLimits(100, 60, ANY_TIME)
    assert len(check(bodies, limits=limits).new) == 60 - len(new_log_schema().columns)
    without_core(monkeypatch)
    assert len(check(bodies, limits=limits).new) == 60 - len(new_log_schema().columns)


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param(
            [b'{%b,"a_b":1,"a":{"b":2}}' % TIME] * 3 + [b'{%b,"a_b":1,"a":{}}' % TIME] * 3,
            id="an object without members",
        ),
        pytest.param([b'{%b,"":{"b":2}}' % TIME] * 3 + [b'{%b,"":{}}' % TIME] * 3, id="one without a name"),
        pytest.param(
            [
                b'{"timestamp":"2026-11-20T21:26:40.123456789Z"}',
                b'{"timestamp":"2026-11-20T21:26:40Z","timestamp__string":"x"}',
            ]
            * 300,
            id="digits beyond microseconds beside a column of their name",
        ),
        pytest.param(
            [b'{"timestamp":"2026-11-20T21:26:40.123456789Z","timestamp__string":"x"}'] * 3,
            id="in one record",
        ),
        pytest.param(
            [b'{%b,"a":{"b":[1]}}' % TIME] * 20 + [b'{%b,"a":{"b":%b1%b}}' % (TIME, b"[" * 99, b"]" * 99)],
            id="as deep as no record may be",
        ),
        pytest.param(
            [b'{%b,"a":{"b":[1]}}' % TIME] * 20 + [b'{%b,"a":{"b":%b1%b}}' % (TIME, b"[" * 98, b"]" * 98)],
            id="as deep as a record may be",
        ),
    ],
)
def test_both_paths_store_what_is_defined(monkeypatch: pytest.MonkeyPatch, bodies: list[bytes]) -> None:
    """And make dead letters of the same."""
    check(bodies)
    without_core(monkeypatch)
    check(bodies)


def test_digits_that_find_no_place_are_kept_with_the_errors() -> None:
    """The column beside the time is another field's."""
    (row,) = rows_of(
        converted([b'{"timestamp":"2026-11-20T21:26:40.123456789Z","timestamp__string":"x"}'])
    ).values()
    assert row["timestamp__string"] == "x"
    assert ("/timestamp", "2026-11-20T21:26:40.123456789Z", "name_collision") in row["_errors"]


def test_columns_with_capitals_get_their_values(tmp_path: object) -> None:
    """Another engine has named them, and Trino knows no capitals."""
    schema = new_log_schema().with_strings({"Foo": (900, "/foo")}, 1)
    found = converted([b'{%b,"foo":"x"}' % TIME, b'{%b,"FOO":"y"}' % TIME], schema=schema)
    assert found.new == {}
    (file,) = write_files(open_storage(), f"file://{tmp_path}", found.rows, schema)
    assert pq.read_table(local_path(file.uri)).column("Foo").to_pylist() == ["x", "y"]
