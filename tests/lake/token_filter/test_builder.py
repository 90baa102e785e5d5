"""The block of a file: what is in the filters of its row groups, and what hostile texts cannot make of it."""

import random
import time
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lake.log_schema import ERRORS, TOPIC, TOPIC_ID, LogSchema, new_log_schema
from lake.token_filter import builder, column_tokens, tokens
from lake.token_filter.block import GroupFilter, TokenFilter, decode
from lake.token_filter.bloom import may_have
from lake.token_filter.builder import FilterBuilder, file_block
from lake.token_filter.tokens import demanded_hashes, in_field

NAMES = ("host", "trace_id", "path")
SCHEMA = new_log_schema().with_strings({name: (101 + at, name) for at, name in enumerate(NAMES)}, 1)
IDS = {name: column.id for name, column in SCHEMA.by_name.items()}
START_US = 1_795_210_020_000_000


def rows(schema: LogSchema = SCHEMA, **columns: list[Any]) -> pa.Table:
    """Rows a second apart, with these columns; the others are NULL."""
    count = len(next(iter(columns.values())))
    given = {"timestamp": [START_US + at * 1_000_000 for at in range(count)], **columns}
    arrays = [
        pa.array(given[field.name], field.type) if field.name in given else pa.nulls(count, field.type)
        for field in schema.arrow
    ]
    return pa.table(arrays, schema=pa.schema([field.with_nullable(True) for field in schema.arrow]))


def built(table: pa.Table, group_rows: int = 1_000_000) -> TokenFilter:
    found = decode(file_block(table, group_rows))
    assert found is not None
    return found


def has(group: GroupFilter, text: str, field: str | None = None) -> bool:
    hashes = demanded_hashes(text)
    return bool(may_have(group.blocks, hashes if field is None else in_field(hashes, IDS[field])).all())


def test_each_row_group_has_the_words_of_its_rows() -> None:
    """Of all text columns, with its times and its number of rows."""
    table = rows(
        message=["Connection refused", None, "took 17 ms", "東京都 Жук"],
        host=["web-1", "web-2", "db_1", None],
        _overflow=[None, '{"zone":"eu"}', None, None],
    )
    found = built(table, 3)
    first, second = found.groups
    assert (first.rows, first.first_us, first.last_us) == (3, START_US, START_US + 2_000_000)
    assert (second.rows, second.first_us, second.last_us) == (1, START_US + 3_000_000, START_US + 3_000_000)
    for words in ("connection", "REFUSED", "web 1", "db_1", "17", "zone", "eu"):
        assert has(first, words), words
        assert not has(second, words), words
    for words in ("東京", "京都", "жУ"):
        assert has(second, words), words
        assert not has(first, words), words
    text = {"message", "severity", "host", "trace_id", "path", "_overflow"}
    assert found.words == {IDS[name] for name in text}
    assert found.counts is not None
    assert found.counts[:, 2].sum() == 4


def test_columns_with_few_words_are_asked_by_their_names() -> None:
    """Topics and `_errors` only by theirs: no word without a field is looked for there. Ids that are nearly
    all distinct do without; a column without a value has no word."""
    count = 20_000
    draws = np.random.default_rng(1)
    table = rows(
        message=[f"user {at % 1_000} of web" for at in range(count)],
        host=["web-1", "db-2"] * (count // 2),
        trace_id=[draws.bytes(16).hex() for _ in range(count)],
        severity=["info"] * count,
        _topic=["orders"] * count,
        _topic_id=["AbC_1-x"] * count,
        _errors=[[{"field": "status", "value": "oops", "reason": "wrong_type"}]] + [None] * (count - 1),
    )
    found = built(table)
    (group,) = found.groups
    assert IDS["trace_id"] not in found.fields
    by_name = ("severity", "message", "host", "path", "_overflow", TOPIC, TOPIC_ID, ERRORS)
    assert found.fields == {IDS[name] for name in by_name}
    assert not found.words & {IDS[TOPIC], IDS[TOPIC_ID], IDS[ERRORS]}
    assert has(group, "web", "host")
    assert has(group, "web", "message")
    assert not has(group, "db", "message")
    assert not has(group, "user", "host")
    assert not has(group, "web", "path")
    assert has(group, "orders", TOPIC)
    assert has(group, "abc_1 x", TOPIC_ID)
    for words in ("status", "OOPS", "wrong_type"):
        assert has(group, words, ERRORS)
        assert not has(group, words)
    assert not has(group, "orders")


def test_tokens_of_fields_are_few_beside_those_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns with the fewest are chosen, as far as their share goes."""
    count = 4_000
    table = rows(
        message=[f"word{at}" for at in range(count)],
        host=[f"host{at % 300}" for at in range(count)],
        path=[f"path{at % 900}" for at in range(count)],
        trace_id=[f"id{at}" for at in range(count)],
    )
    monkeypatch.setattr(builder, "FIELDS_SHARE_OF_ROWS", 0)
    monkeypatch.setattr(builder, "FIELDS_SHARE", 0.05)
    assert {"host", "path"} & {name for name in NAMES if IDS[name] in built(table).fields} == {"host"}
    monkeypatch.setattr(builder, "FIELDS_SHARE", 0.2)
    assert {name for name in NAMES if IDS[name] in built(table).fields} == {"host", "path"}
    monkeypatch.setattr(builder, "FIELDS_SHARE", 0)
    monkeypatch.setattr(builder, "FIELDS_SHARE_OF_ROWS", 0.1)
    assert {name for name in NAMES if IDS[name] in built(table).fields} == {"host"}


def test_a_row_group_with_too_many_words_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any word may be in it; the others keep theirs."""
    for module in (builder, column_tokens):
        monkeypatch.setattr(module, "KEYS_MAX", 1_000)
    monkeypatch.setattr(tokens, "CHUNK_BYTES", 500)
    many = " ".join(f"w{at}" for at in range(1_001))
    found = built(rows(message=["few words", many, "other words"]), 1)
    assert [len(group.blocks) for group in found.groups] == [1, 0, 1]
    assert has(found.groups[1], "anything")
    assert has(found.groups[1], "anything", "host")
    assert not has(found.groups[0], "other")


def test_a_row_group_with_too_long_a_value_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is in the value."""
    for module in (tokens, column_tokens):
        monkeypatch.setattr(module, "VALUE_BYTES_MAX", 1_000)
    found = built(rows(message=["few words", "x" * 1_001]), 1)
    assert [len(group.blocks) for group in found.groups] == [1, 0]


def test_a_file_with_more_filters_than_readers_take_loses_the_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the block stays within what is read."""
    monkeypatch.setattr(builder, "_FILTERS_BYTES_MAX", 4_000)
    table = rows(message=["a", " ".join(f"w{at}" for at in range(3_000)), "b", "c"])
    assert [len(group.blocks) for group in built(table, 1).groups] == [1, 0, 1, 1]


@pytest.mark.long
def test_hostile_texts_cost_little() -> None:
    """A run of 1 MiB, half a million distinct words in one value, deep Unicode, a letter a word: seconds at
    most, and memory within some hundred MiB."""
    draw = random.Random(1)
    values = [
        "x" * (1 << 20),
        " ".join(f"{at:x}" for at in range(500_000)),
        "".join(chr(draw.randrange(0x20, 0xD7FF)) for _ in range(1 << 20)),
        "e" + "\u0301" * (1 << 19),
        "a b " * (1 << 18),
        "\U00020bb7" * (1 << 18),
        "\x00" * (1 << 20),
        "İ" * (1 << 19),
    ]
    table = rows(message=values)
    tracemalloc.start()
    started_s = time.process_time()
    found = built(table)
    took_s, peak = time.process_time() - started_s, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took_s < 10
    assert peak < 400 << 20
    assert has(found.groups[0], "x" * (1 << 20))
    assert has(found.groups[0], "7a11f")


@pytest.mark.parametrize("missing", ["timestamp", "field id", "times", "unit"])
def test_a_file_of_which_little_is_known_has_no_block(missing: str) -> None:
    """Without times, or with a column that has no field id, which might hold text that nobody has seen."""
    table = rows(message=["a", "b"])
    if missing == "timestamp":
        table = table.drop_columns(["timestamp"])
    elif missing == "field id":
        table = table.append_column("odd", pa.array(["c", "d"]))
    elif missing == "times":
        times = pa.array([START_US, None], pa.timestamp("us", "UTC"))
        table = table.set_column(0, table.schema.field(0), times)
    else:
        field = table.schema.field(0).with_type(pa.timestamp("ns", "UTC"))
        table = table.set_column(0, field, table.column(0).cast(field.type))
    assert file_block(table, 10) == b""


def test_a_file_without_rows_has_no_block() -> None:
    """There is nothing to say of it."""
    assert file_block(rows(message=["a"]).slice(0, 0), 10) == b""
    assert FilterBuilder().block() == b""


def test_rows_of_all_forms_have_one_block() -> None:
    """Chunks, dictionaries, large text: as merges read and combine them."""
    draw = random.Random(2)
    table = rows(
        message=[draw.choice(["a b", "東京", None, "x-1"]) for _ in range(500)],
        host=[draw.choice(["h1", "h2"]) for _ in range(500)],
        _errors=[
            draw.choice([None, [{"field": "f", "value": str(at), "reason": None}], []]) for at in range(500)
        ],
    )
    block = file_block(table, 200)
    chunked = pa.concat_tables([table.slice(at, 70) for at in range(0, 500, 70)])
    assert file_block(chunked, 200) == block
    place = table.column_names.index("message")
    for kind in (pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()):
        field = table.schema.field(place).with_type(kind)
        assert file_block(table.set_column(place, field, table.column(place).cast(kind)), 200) == block
