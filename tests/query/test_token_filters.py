"""Token filters leave out files and row groups, and never a row that a search would find: whatever is asked,
and whatever becomes of filters and packs."""

import errno
import os
import random
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap64

from lake.catalog_client import TableName
from lake.errors import UnavailableError
from lake.log_schema import LogSchema
from lake.settings import QuerySettings
from lake.snapshot import Totals
from lake.token_filter import builder
from lake.token_filter.alphabet import alphabet_of
from lake.token_filter.block import (
    BLOCK_BYTES_MAX,
    HEADER_BYTES_MAX,
    GroupFilter,
    TokenFilter,
    decode,
    encode,
)
from query.executors.embedded import PARTS_MAX, EmbeddedExecutor
from query.executors.executor import Source
from query.files import filter_pack, token_filters
from query.files.file_index import LiveFile, LiveFiles
from query.files.filter_pack import DamagedPackError
from query.files.pack_folder import PackFolder
from query.files.token_demand import TOKENS_MAX, Coverage, InAnyColumn, InColumn, OneOf, covered, token_count
from query.files.token_filters import Narrowed
from query.language.search_language import Match, Node, Span, parse_search
from query.language.search_sql import text_columns
from query.model.cancellation import Run
from query.model.table_view import EPOCH, TableView, table_id
from query.search.file_planner import Effort, Plan, plan_files, slices
from query.search.search import select_rows
from query.search.token_demands import demand_of, tokens_of
from tests.query.support.filtered_files import FilteredFiles
from tests.query.support.one_file import schema
from tests.query.support.reference import START, matches, random_query, records
from tests.query.test_words_of_all_scripts import random_question, random_rows

QUERIES = int(os.environ.get("FIRN_SEARCH_QUERIES", "10"))  # the long proof has many times as many
QUESTIONS = QUERIES * 25
IDENTITY = {"_topic": "t", "_topic_id": "i", "_topic_partition": 0, "_index": 0}
WEEK = timedelta(days=7)
Rows = Sequence[Mapping[str, Any]]


def whole(rows: Rows, start_offset: int = 0) -> list[dict[str, Any]]:
    """Complete rows in the order of their times."""
    made = [
        {"timestamp": START + timedelta(seconds=at), "observed_timestamp": START, **row, **IDENTITY}
        for at, row in enumerate(rows)
    ]
    made.sort(key=lambda row: row["timestamp"])
    return [{**row, "_offset": start_offset + at} for at, row in enumerate(made)]


def words(*texts: str, **more: Any) -> list[dict[str, Any]]:
    return whole([{"message": text, **more} for text in texts])


@pytest.fixture
def table(tmp_path: Path) -> FilteredFiles:
    return FilteredFiles(tmp_path, schema())


def uris(files: Sequence[LiveFile]) -> list[str]:
    return [file.uri for file in files]


# ---- what is demanded


@pytest.mark.parametrize(
    ("query", "demanded"),
    [
        ("refused", 1),
        ('"Connection refused"', 2),
        ("conn*", 0),
        ("*conn", 0),
        ("a.conn*", 1),
        ("10.0.?.1", 3),
        ("10.0?.1", 2),
        ("東京都", 2),
        ("東京*", 1),
        ("ГОРОД", 4),
        ("message:refused", 1),
        ("_errors:wrong_type", 1),
        ("a b", 2),
        ("a OR b", 2),
        ("a OR NOT b", 0),
        ("a (b OR c*)", 1),
        ("-a", 0),
        ("status:[400 TO 499]", 0),
        ("bytes:10", 0),
        ("ok:true", 0),
        ("path:*", 0),
        ('path:""', 0),
        ("*", 0),
        ("nosuchfield:x", 0),
        ('"!?"', 0),
    ],
)
def test_words_are_demanded_and_doubts_are_not(query: str, demanded: int) -> None:
    """How many tokens a search asks for."""
    demand = demand_of(parse_search(query), schema(), ())
    assert (0 if demand is None else token_count(demand)) == demanded


def test_a_search_asks_for_a_bounded_number_of_tokens() -> None:
    """Of an AND some are left out; an OR of many demands nothing; of a long text some words are asked."""
    assert demand_of(parse_search(" OR ".join(f"w{at}" for at in range(100))), schema(), ()) is None
    many = demand_of(parse_search(" ".join(f"w{at}" for at in range(100))), schema(), ())
    assert many is not None
    assert token_count(many) == TOKENS_MAX
    text = parse_search('"' + " ".join(f"w{at}" for at in range(500)) + '"')
    assert isinstance(text, Match)
    assert len(tokens_of(text)) == 8


def test_fields_are_asked_as_the_filter_covers_them() -> None:
    """As tokens of the field, as any column's, or not at all; and columns that are covered as fields only."""
    demand = demand_of(parse_search("path:x"), schema(), ())
    assert isinstance(demand, InColumn)
    one = demand.column
    assert covered(demand, Coverage(frozenset((one,)), frozenset((one,)))) is demand
    assert isinstance(covered(demand, Coverage(frozenset((one,)), frozenset())), InAnyColumn)
    assert covered(demand, Coverage(frozenset((one + 1,)), frozenset())) is None
    anywhere = demand_of(parse_search("x"), schema(), ())
    assert anywhere is not None
    by_both = covered(anywhere, Coverage(frozenset((3,)), frozenset((one,))))
    assert isinstance(by_both, OneOf)
    assert len(by_both.children) == 2


def test_columns_of_other_types_that_no_file_has_do_not_hold_a_filter_up(table: FilteredFiles) -> None:
    """A field for which a type was declared means two columns."""
    declared = LogSchema(
        {
            "fields": [
                *schema().json["fields"],
                {"id": 900, "name": "path__long", "required": False, "type": "long"},
            ]
        }
    )
    table.add(words("x", path="/a"))
    node = parse_search("path:nowhere")
    assert demand_of(node, declared, table.files) is not None
    assert demand_of(node, declared, [LiveFile("file:///x", 1, 1, 0, 1, None, None, None, None)]) is None


# ---- what is left out


def test_only_files_and_row_groups_with_the_word_are_left(table: FilteredFiles, tmp_path: Path) -> None:
    """Of three files the one that has it, of its row groups the one; a file without filters always."""
    filters = table.filters(tmp_path / "state")
    table.add(words(*(f"alpha {at}" for at in range(3_000))), group_rows=1_000)
    table.add(words(*(f"beta {at}" for at in range(3_000))), group_rows=1_000)
    bare = table.add(words("gamma"), token_filter=False)
    assert bare.filter_bytes == 0
    found = table.narrowed(filters, parse_search("beta 1500"))
    assert uris(found.files) == [table.files[1].uri, bare.uri]
    assert [(group.first_row, group.rows) for group in found.groups[table.files[1].uri]] == [(1_000, 1_000)]
    effort = found.effort
    assert (effort.files, effort.files_left, effort.row_groups, effort.row_groups_left) == (2, 1, 6, 1)
    absent = table.narrowed(filters, parse_search("message:nowhere"))
    assert uris(absent.files) == [bare.uri]


def test_each_filter_is_read_once(table: FilteredFiles, tmp_path: Path) -> None:
    """Searches, another process later, and files that came meanwhile: each costs one ranged read."""
    filters = table.filters(tmp_path / "state")
    for at in range(20):
        table.add(words(f"word{at}"))
    for at in (3, 7, 7):
        assert uris(table.narrowed(filters, parse_search(f"word{at}")).files) == [table.files[at].uri]
    table.add(words("word20"))
    again = table.filters(tmp_path / "state")
    assert uris(table.narrowed(again, parse_search("word20")).files) == [table.files[20].uri]
    assert sorted(table.storage.ranges) == uris(table.files)


@pytest.mark.parametrize("limit", ["FIRST_FILES", "FIRST_BYTES"])
def test_filters_that_are_not_read_at_once_leave_their_files(
    table: FilteredFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """The newest files' are read first, up to a number and some bytes; the rest may match until they are."""
    filters = table.filters(tmp_path / "state")
    for at in range(10):
        table.add(whole([{"timestamp": START + timedelta(hours=at), "message": "x"}]))
    most = {"FIRST_FILES": 4, "FIRST_BYTES": sum(file.filter_bytes for file in table.files[6:])}
    monkeypatch.setattr(f"query.files.token_filters.{limit}", most[limit])
    found = table.narrowed(filters, parse_search("nowhere"), is_first=True)
    assert uris(found.files) == uris(table.files[:6])
    assert found.unread == frozenset(uris(table.files[:6]))
    assert not table.narrowed(filters, parse_search("nowhere")).files


@pytest.mark.long
def test_slices_go_by_what_is_left(table: FilteredFiles, tmp_path: Path) -> None:
    """Files with one row group of many count for what is read of them."""
    for at in range(3):
        rows = [
            {"timestamp": START + timedelta(hours=at, milliseconds=n), "message": f"m{n}"}
            for n in range(30_000)
        ]
        table.add(whole(rows), group_rows=1_000)
    plan = planned(table, parse_search("m777"), table.filters(tmp_path / "state"))
    assert (plan.planned.files, plan.planned.rows) == (3, 3_000)
    assert plan.planned.size_bytes < sum(file.size_bytes for file in table.files) // 20
    assert plan.planned + plan.skipped == planned(table, parse_search("*"), None).planned
    assert [len(piece.files) for piece in slices(plan)] == [3]


# ---- nothing is hidden


def planned(table: FilteredFiles, question: Node, filters: Any) -> Plan:
    def narrow(files: Sequence[LiveFile]) -> Any:
        demand = demand_of(question, table.schema, files)
        return table.narrowed(filters, question) if demand is not None else Narrowed(tuple(files))

    live = LiveFiles(tuple(table.files), has_deletes=False)
    return plan_files(
        live, START - WEEK, START + WEEK, question, table.schema, None if filters is None else narrow
    )


@pytest.mark.long
def test_no_row_of_any_script_is_hidden(tmp_path: Path) -> None:
    """Random questions over random texts: what matches by the plain filter is in what is left; and much is
    left out."""
    r = random.Random(41)
    asked = left_out = 0
    while asked < QUESTIONS:
        table = FilteredFiles(tmp_path, schema(), f"table-{asked}")
        filters = table.filters(tmp_path / "state")
        texts = [random_rows(r) for _ in range(4)]
        for rows in texts:
            table.add(whole(rows), group_rows=r.choice((7, 20, 1_000)), token_filter=r.random() > 0.05)
        for _ in range(500):
            question = random_question(r, r.choice(texts))
            left = {id(row) for row in table.left(table.narrowed(filters, question))}
            for row in (row for rows in table.rows for row in rows):
                if id(row) not in left:
                    left_out += 1
                    assert not matches(question, row), (question, row)
        asked += 500
        shutil.rmtree(table.folder)
    assert left_out > asked * 20


def embedded(tmp_path: Path) -> EmbeddedExecutor:
    return EmbeddedExecutor(
        QuerySettings(state=str(tmp_path)),
        lambda uris, _: [uri.removeprefix("file://") for uri in uris],
        lambda: [tmp_path],
    )


def view(table: FilteredFiles) -> TableView:
    name = TableName("t", "logs")
    return TableView(
        table_id("t", "logs"), name, "u", table.schema, True, 1, EPOCH, None, Totals(), {}, {}, {}
    )


def found_with(
    engine: EmbeddedExecutor,
    table: FilteredFiles,
    question: Node,
    plan: Plan | None,
    deleted: Callable[[], Mapping[str, BitMap64]] | None = None,
) -> list[tuple[Any, ...]]:
    """The offsets of the rows that match, by what filters left of files, row groups and columns; by
    everything without a plan."""
    plan = plan or Plan(tuple(table.files), START, START, Effort(), Effort(), has_deletes=False)
    select = select_rows(["_offset"], table.condition(question, plan.columns), None, newest_first=True)
    source = Source(view(table), plan.files, deleted, plan.groups)
    return sorted(engine.fetch(source, select, Run(60.0)).rows)


@pytest.mark.parametrize("few_fields", [False, True])
@pytest.mark.long
def test_words_are_looked_for_in_the_columns_that_may_have_them(
    tmp_path: Path, few_fields: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random questions over texts of many scripts: the same rows as with all columns, from fewer of them; by
    the tokens of fields, or by the characters of columns alone."""
    if few_fields:
        monkeypatch.setattr(builder, "FIELDS_SHARE", 0)
        monkeypatch.setattr(builder, "FIELDS_SHARE_OF_ROWS", 0)
    r = random.Random(47)
    table = FilteredFiles(tmp_path, schema())
    filters, engine = table.filters(tmp_path / "state"), embedded(tmp_path)
    texts = [random_rows(r) for _ in range(4)]
    for at, rows in enumerate(texts):
        ids = [{**row, "path": f"{r.randrange(1 << 40):x}"} if at % 2 else row for row in rows]
        table.add(whole(ids, at * 1_000), group_rows=r.choice((20, 1_000)))
    fewer, everything = 0, len(text_columns(table.schema))
    for at in range(QUERIES * 2):
        rows = r.choice(texts)
        text = r.choice([text for row in rows for text in row.values() if text])
        whole_text = Match(None, (text[:20],), True, Span(0, 1))
        question = whole_text if at % 2 else random_question(r, rows)
        plan = planned(table, question, filters)
        assert found_with(engine, table, question, plan) == found_with(engine, table, question, None), at
        fewer += any(len(columns) < everything for columns in plan.columns)
    assert fewer > QUERIES / 2


def test_a_column_of_ids_has_no_word_with_other_letters(
    table: FilteredFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by its characters, where its tokens are too many for tokens of their field; not where a pack says
    so many things that to tell columns apart would take longer."""
    monkeypatch.setattr(builder, "FIELD_KEYS_MAX", 10)
    r = random.Random(3)
    for at in range(3):
        ids = [f"{r.getrandbits(60):x}" for _ in range(100)]
        table.add(whole([{"message": f"cafe refused {n} {at}", "path": n} for n in ids], at * 100))
    filters = table.filters(tmp_path / "state")
    message, path = (table.schema.by_name[name].id for name in ("message", "path"))
    (refused,) = planned(table, parse_search("refused"), filters).columns
    assert refused == {message: alphabet_of("0123456789abcdef refused")}
    (cafe,) = planned(table, parse_search("cafe"), filters).columns
    assert cafe == {message: refused[message], path: alphabet_of("0123456789abcdef")}
    monkeypatch.setattr(filter_pack, "TOLD_APART_MAX", 10)
    (refused,) = planned(table, parse_search("refused"), filters).columns
    assert refused == dict.fromkeys(column.id for column in text_columns(table.schema))


@pytest.mark.parametrize("seed", range(max(1, QUERIES // 40)))
@pytest.mark.long
def test_the_engine_finds_the_same_with_and_without_filters(tmp_path: Path, seed: int) -> None:
    """Random searches of the language over records with nulls, numbers as text and `_errors`; some rows are
    deleted."""
    r = random.Random(seed)
    table = FilteredFiles(tmp_path, schema())
    filters, engine = table.filters(tmp_path / "state"), embedded(tmp_path)
    for at in range(6):
        found = sorted(records(300, seed * 100 + at), key=lambda row: str(row["message"]))
        times = sorted(row["timestamp"] for row in found)
        rows = [{**row, "timestamp": time} for row, time in zip(found, times, strict=True)]
        table.add(whole(rows, at * 1_000), group_rows=r.choice((20, 50, 1_000)))
    dead = {file.uri: BitMap64(r.sample(range(300), 40)) for file in table.files[::2]}
    left_out = cut = 0
    for at in range(24):
        text = r.choice([row["message"] for rows in table.rows for row in rows if row["message"]])
        phrase = '"' + re.sub(r'([\\"])', r"\\\1", text) + '"'
        query = random_query(r) if at % 2 else f"{phrase} AND ({random_query(r)} OR message:{phrase})"
        question = parse_search(query)
        plan = planned(table, question, filters)
        for deleted in (None, lambda: dead):
            assert found_with(engine, table, question, plan, deleted) == found_with(
                engine, table, question, None, deleted
            ), query
        left_out += len(plan.files) < len(table.files)
        cut += bool(plan.groups)
    assert left_out + cut > 5


@pytest.mark.long
def test_many_parts_of_files_are_read_as_some_scans(tmp_path: Path) -> None:
    """However many row groups are left here and there, the statement stays short and the rows the same."""
    table = FilteredFiles(tmp_path, schema())
    for at in range(40):
        table.add(whole([{"message": f"n{n % 3}"} for n in range(6)], at * 100), group_rows=1)
    question = parse_search("n1")
    plan = planned(table, question, table.filters(tmp_path / "state"))
    assert len(plan.groups) == 40 > PARTS_MAX
    condition = table.condition(question)
    source = Source(view(table), plan.files, None, plan.groups)
    select = select_rows(["_offset"], condition, None, newest_first=True)
    assert len(embedded(tmp_path).fetch(source, select, Run(60.0)).rows) == 80


# ---- filters and packs that are not what they were


def damage(file: LiveFile, at: int, with_bytes: bytes) -> None:
    with Path(file.uri.removeprefix("file://")).open("r+b") as opened:
        opened.seek(4 + at)
        opened.write(with_bytes)


@pytest.mark.parametrize("at", [0, 8, 10, 12, 20, 40, -40, -1])
def test_a_damaged_filter_hides_no_row_and_is_read_once(
    table: FilteredFiles, tmp_path: Path, at: int
) -> None:
    """Magic, versions, lengths, checksum, header, filters."""
    file = table.add(words(*(f"word{n}" for n in range(100))))
    damage(file, at % file.filter_bytes, b"\xa5\x5a")
    filters = table.filters(tmp_path / "state")
    for query in ("nowhere", "word7", "word8"):
        assert uris(table.narrowed(filters, parse_search(query)).files) == [file.uri]
    assert table.storage.ranges == [file.uri]


def test_a_filter_of_fewer_rows_than_the_file_has_is_not_believed(
    table: FilteredFiles, tmp_path: Path
) -> None:
    """Whatever its checksum says."""
    few, many = table.add(words("one")), table.add(words(*["two"] * 3, *["three"] * 3))
    block = Path(few.uri.removeprefix("file://")).read_bytes()[4 : 4 + few.filter_bytes]
    damage(many, 0, block)
    table.files[1] = LiveFile(**{**_fields(many), "filter_bytes": few.filter_bytes})
    assert uris(table.narrowed(table.filters(tmp_path / "state"), parse_search("three")).files) == [many.uri]


@pytest.mark.long
def test_a_block_cannot_make_its_readers_hold_any_number_of_row_groups() -> None:
    """Its header is bounded, whatever room the block has."""
    group = GroupFilter(0, 0, 0, np.zeros((0, 8), np.uint32))
    hostile = TokenFilter((group,) * 200_000, frozenset(), frozenset())
    assert HEADER_BYTES_MAX < len(encode(hostile)) < BLOCK_BYTES_MAX
    assert decode(encode(hostile)) is None


def _fields(file: LiveFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in LiveFile.__slots__}


def test_a_filter_that_cannot_be_read_now_is_read_later(
    table: FilteredFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage does not answer, and is asked once: all files may match, and nothing is kept of that."""
    for _ in range(3):
        table.add(words("one"))
    filters, asked = table.filters(tmp_path / "state"), list[object]()

    def unavailable(uri: str, *_: object) -> bytes:
        asked.append(uri)
        raise UnavailableError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(table.storage, "read_range", unavailable)
        assert uris(table.narrowed(filters, parse_search("nowhere")).files) == uris(table.files)
    assert len(asked) == 1
    assert not table.narrowed(filters, parse_search("nowhere")).files


def packs_in(state: Path) -> list[Path]:
    return sorted(state.glob("*/*.pack"))


def _removed(pack: Path, _: random.Random) -> None:
    pack.unlink()


def _cut(pack: Path, r: random.Random) -> None:
    pack.write_bytes(pack.read_bytes()[: r.randrange(pack.stat().st_size)])


def _changed(pack: Path, r: random.Random) -> None:
    """Every byte somewhere."""
    raw = bytearray(pack.read_bytes())
    at, bit = r.randrange(len(raw)), r.randrange(8)
    raw[at] ^= 1 << bit
    pack.write_bytes(raw)


def _zeroed(pack: Path, r: random.Random) -> None:
    """As a file system leaves files of a machine that lost its power."""
    raw = bytearray(pack.read_bytes())
    at = r.randrange(len(raw))
    raw[at:] = bytes(len(raw) - at)
    pack.write_bytes(raw)


@pytest.mark.parametrize("harm", [_removed, _cut, _changed, _zeroed])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.long
def test_packs_that_are_lost_or_damaged_hide_no_row(
    tmp_path: Path, harm: Callable[[Path, random.Random], None], *, restarts: bool
) -> None:
    """While the process knows them and after a restart; they are made anew where that is noticed."""
    r = random.Random(5)
    table = FilteredFiles(tmp_path, schema())
    for at in range(12):
        table.add(words(*(f"w{at} x{n}" for n in range(r.choice((5, 50)))), path=f"/p{at}"))
    filters = table.filters(tmp_path / "state")
    for _ in range(60):
        table.narrowed(filters, parse_search("w1"))
        for pack in packs_in(tmp_path / "state"):
            harm(pack, r)
        filters = table.filters(tmp_path / "state") if restarts else filters
        at = r.randrange(12)
        for query in (f"w{at}", f"path:p{at}", f"w{at} x3"):
            found = table.narrowed(filters, parse_search(query)).files
            assert table.files[at].uri in uris(found)
    shutil.rmtree(tmp_path / "state")
    assert uris(table.narrowed(filters, parse_search("w3")).files) == [table.files[3].uri]


def test_the_pack_of_one_table_never_answers_for_another(tmp_path: Path) -> None:
    """Two tenants with files of like names; their packs are swapped on the disk, also before a restart."""
    one, other = FilteredFiles(tmp_path, schema(), "one"), FilteredFiles(tmp_path, schema(), "other")
    one.add(words("secret"))
    other.add(words("public"))
    filters = one.filters(tmp_path / "state")
    for table in (one, other):
        table.narrowed(filters, parse_search("x"))
    first, second = packs_in(tmp_path / "state")
    for again in (filters, one.filters(tmp_path / "state")):
        kept = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(kept)
        for table, word in ((one, "secret"), (other, "public")):
            assert len(table.narrowed(again, parse_search(word)).files) == 1
            assert not table.narrowed(again, parse_search("nowhere")).files
        assert len(packs_in(tmp_path / "state")) == 2


def test_packs_stay_within_their_budget(tmp_path: Path) -> None:
    """The ones unused for longest go first, also those of a process before."""
    tables = [FilteredFiles(tmp_path, schema(), f"t{at}") for at in range(6)]
    filters = tables[0].filters(tmp_path / "state", 5 * 4_096)
    for table in tables[:5]:
        table.add(words("x"))
        table.narrowed(filters, parse_search("x"))
    tables[0].narrowed(filters, parse_search("x"))
    tables[5].add(words("x"))
    tables[5].narrowed(filters, parse_search("x"))
    assert len(packs_in(tmp_path / "state")) == 5
    reads = len(tables[0].storage.ranges), len(tables[1].storage.ranges)
    for table in tables[:2]:
        table.narrowed(table.filters(tmp_path / "state", 5 * 4_096), parse_search("x"))
    assert (len(tables[0].storage.ranges), len(tables[1].storage.ranges)) == (reads[0], reads[1] + 1)
    assert len(packs_in(tmp_path / "state")) == 5


def test_what_the_table_has_no_more_leaves_the_packs(table: FilteredFiles, tmp_path: Path) -> None:
    """When filters of new files come: files of the same week, and weeks that are gone."""
    filters = table.filters(tmp_path / "state")
    for at in range(3):
        table.add(whole([{"timestamp": START - at * WEEK, "message": f"w{at}"}]))
    table.narrowed(filters, parse_search("x"))
    assert len(packs_in(tmp_path / "state")) == 3
    del table.files[:2], table.rows[:2]
    table.add(whole([{"timestamp": START - 2 * WEEK, "message": "new"}]))
    table.narrowed(filters, parse_search("x"))
    (pack,) = packs_in(tmp_path / "state")
    assert pack.read_bytes().count(b".parquet") == 2


def test_the_filter_of_an_erased_file_is_gone_and_does_not_come_back(
    table: FilteredFiles, tmp_path: Path
) -> None:
    """Out of every pack at once; a search that began before puts it into none."""
    filters = table.filters(tmp_path / "state")
    for name in ("kept", "erased"):
        table.add(words(name))
    table.narrowed(filters, parse_search("x"))
    gone = table.files[1]
    filters.forget([gone.uri])
    assert not packs_in(tmp_path / "state")
    assert uris(table.narrowed(filters, parse_search("erased")).files) == [gone.uri]
    assert not packs_in(tmp_path / "state")
    table.files.remove(gone)
    table.narrowed(filters, parse_search("x"))
    (pack,) = packs_in(tmp_path / "state")
    assert gone.uri.encode() not in pack.read_bytes()


def test_a_pack_that_cannot_be_kept_answers_all_the_same(table: FilteredFiles, tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "state").write_text("in the way")
    table.add(words("one"))
    filters = table.filters(tmp_path / "state")
    assert not table.narrowed(filters, parse_search("nowhere")).files
    assert len(table.narrowed(filters, parse_search("one")).files) == 1


def test_a_pack_that_a_full_disk_cuts_leaves_nothing_behind(
    table: FilteredFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part of it was written: that part goes, and the answer is right."""
    table.add(words("one"))
    filters = table.filters(tmp_path / "state")
    write = Path.write_bytes

    def cut(path: Path, data: bytes) -> int:
        write(path, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", cut)
    assert not table.narrowed(filters, parse_search("nowhere")).files
    assert [path for path in (tmp_path / "state").rglob("*") if path.is_file()] == []


def test_a_pack_of_another_version_is_none(table: FilteredFiles, tmp_path: Path) -> None:
    """Of the pack itself, of the filters or of the tokenizer."""
    table.add(words("one"))
    for at in (8, 10, 12):
        table.narrowed(table.filters(tmp_path / "state"), parse_search("one"))
        (pack,) = packs_in(tmp_path / "state")
        raw = bytearray(pack.read_bytes())
        raw[at] += 1
        pack.write_bytes(raw)
        folder = PackFolder(tmp_path / "state", 1 << 20)
        with pytest.raises(DamagedPackError), folder.opened(pack, table.table.key):
            pass
        assert not pack.exists()


@pytest.mark.long
def test_many_searches_at_once_hide_no_row(tmp_path: Path) -> None:
    """Threads that ask, forget and damage, over tables of several weeks and a small budget."""
    tables = [FilteredFiles(tmp_path, schema(), f"t{at}") for at in range(3)]
    for table in tables:
        for at in range(12):
            rows = [{"timestamp": START - (at % 4) * WEEK, "message": f"w{at} x{n}"} for n in range(20)]
            table.add(whole(rows), group_rows=5)
    filters = tables[0].filters(tmp_path / "state", 8 * 4_096)
    stop = threading.Event()

    def harm() -> None:
        r = random.Random(1)
        while not stop.is_set():
            with suppress(FileNotFoundError, ValueError):  # it went just now
                pack = r.choice(packs_in(tmp_path / "state") or [tmp_path / "none"])
                r.choice((_removed, _cut, _changed))(pack, r)

    def ask(seed: int) -> int:
        r, hidden = random.Random(seed), 0
        for _ in range(100):
            table, at, n = r.choice(tables), r.randrange(12), r.randrange(20)
            left = table.left(table.narrowed(filters, parse_search(f"w{at} x{n}")))
            hidden += f"w{at} x{n}" not in [row["message"] for row in left]
            if r.random() < 0.1:
                filters.forget([f"file:///elsewhere/{seed}"])
        return hidden

    with ThreadPoolExecutor(9) as pool:
        harming = pool.submit(harm)
        hidden = list(pool.map(ask, range(8)))
        stop.set()
        harming.result()
    assert sum(hidden) == 0


def test_counts_are_read_without_the_filters(table: FilteredFiles, tmp_path: Path) -> None:
    """Rows by minute and level; none of a file that carries none, or whose head is damaged."""
    file = table.add(words(*["x"] * 130, severity="ERROR"))
    damaged = table.add(words("x"))
    table.add(words("x"), token_filter=False)
    damage(damaged, 30, b"\xff\xff")
    counts = table.filters(tmp_path / "state").counts(table.location, table.files)
    assert list(counts) == [file.uri]
    assert counts[file.uri][:, 2].tolist() == [60, 60, 10]


def test_counts_held_in_memory_are_bounded(
    table: FilteredFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever files say of themselves: of those beyond the bound a search counts the rows itself."""
    minute = timedelta(minutes=1)
    for _ in range(4):
        table.add(whole([{"timestamp": START + at * minute, "message": "x"} for at in range(10)]))
    monkeypatch.setattr(token_filters, "COUNTS_MAX", 25)
    counts = table.filters(tmp_path / "state").counts(table.location, table.files)
    assert [len(each) for each in counts.values()] == [10, 10]
