"""The native core's columns of JSON: what it calls plain is what the exact path gives, ordinary records are
plain, and no input takes more memory than stated."""

import base64
import gc
import json
import os
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from infra.demo.draws import Draws
from infra.demo.profiles import EVENT_SHAPES
from ingest.convert import json_records
from ingest.core.json_columns import (
    ARRAY,
    BOOLEAN,
    DECIMAL,
    EMPTY_OBJECT,
    INTEGER,
    NON_FINITE,
    ROWS_MAX,
    TEXT,
)
from ingest.core.library import Status
from ingest.model.raw_rows import ByteValues
from tests.ingest.support.json_comparison import check, parser, rows
from tests.ingest.support.json_records import DEPTH_MAX, Generator
from tests.ingest.support.own_process import in_a_process

pytestmark = pytest.mark.core

SEED = int(os.environ.get("FIRN_TEST_SEED", "1"))
RECORDS = int(os.environ.get("FIRN_JSON_RECORDS", "25000"))
CHUNK = 4_096
AT_MS = 1_763_000_000_000


def _spelled_object(drawn: tuple[str, Sequence[tuple[str, str, str]]]) -> str:
    blank, members = drawn
    return "{" + ",".join(f'{blank}"{key}"{space}:{value}' for key, space, value in members) + "}"


# Texts that escapes, quotes and surrogates may be cut of anywhere.
PIECES = [*'ab\\"u0dD8{}[]:,/ n\t\x00é☃😀', "\\u00e9", "\\ud83d\\ude00", "\\ud800"]
SPELLED = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
KEYS = st.one_of(st.sampled_from(["a", "b", "é", "\\u0061", "a.b", "resourceLogs"]), SPELLED)
SCALARS = st.one_of(
    SPELLED.map('"{}"'.format),
    st.integers().map(str),
    st.floats().map(json.dumps),
    st.sampled_from(["true", "false", "null", "-0", "1E5", "1.50", "01", "NaN", "{}", "[]"]),
)
BLANKS = st.sampled_from(["", "", "", " ", "\n\t", "\r", "\x0b"])
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.tuples(BLANKS, st.lists(inner, max_size=4)).map(lambda drawn: f"[{drawn[0]}{','.join(drawn[1])}]"),
        st.tuples(BLANKS, st.lists(st.tuples(KEYS, BLANKS, inner), max_size=4)).map(_spelled_object),
    ),
    max_leaves=12,
)


RECORDS_OF_JSON = st.one_of(
    st.tuples(BLANKS, st.lists(st.tuples(KEYS, BLANKS, DOCUMENTS), max_size=5)).map(_spelled_object),
    DOCUMENTS,
).map(lambda text: text.encode("utf-8", "surrogatepass"))


@pytest.mark.long
def test_generated_records_give_what_the_exact_path_gives(record_property: Any) -> None:
    """Every generated record, in a process that may take half a gigabyte more than it has at its start."""
    told = in_a_process(
        "json_comparison", "--records", str(RECORDS), "--seed", str(SEED), "--memory-mb", "512"
    )
    for name, value in told.items():
        record_property(name, str(value))
    assert Counter(told["told"]).total() == told["records"] == RECORDS
    assert told["told"]["plain"] > 0.6 * RECORDS
    assert len(told["told"]) >= 9  # plain, and each reason to be odd


@pytest.mark.long
@given(st.lists(st.one_of(RECORDS_OF_JSON, st.binary(max_size=20)), max_size=8))
@example([b'{"a":1}', b'{"a":"', b'{"a":{"b":1}}', b'{"a":[{"b":1,"b":[[[[[[]]]]]]}]}'])
@example([b'{"a":"\\ud800\\udc00","\\ud800\\udc00":1}', '{"\U00010000":2}'.encode(), b'{"a":"\xed\xa0\x80"}'])
def test_any_bytes_give_what_the_exact_path_gives(values: list[bytes]) -> None:
    """Whatever the records are, and whatever came before them."""
    reader = parser()
    check(values, reader.parse(values))
    check(values[::-1], reader.parse(values[::-1]))


def test_values_that_lie_together_are_read_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of them, too, and some at a time."""
    values = [b'{"n":%d}' % number for number in range(5)]
    together = ByteValues(b"".join(values), np.cumsum([len(value) for value in values]))
    check(values[2:4], parser().parse(together[2:4]))
    monkeypatch.setattr(json_records, "JOINED_BYTES", len(values[0]) * 2)
    decoded, left = json_records.read_objects(together[1:], DEPTH_MAX)
    assert [some.positions for some in decoded] == [[0, 1], [2, 3]]
    columns = [some.records.columns["n"] for some in decoded]
    assert [pa.array(column.texts).to_pylist() for column in columns] == [["1", "2"], ["3", "4"]]
    assert left == []


@given(st.lists(RECORDS_OF_JSON, min_size=1, max_size=4), st.integers(0, 300), st.integers(0, 255))
def test_a_byte_changed_gives_what_the_exact_path_gives(values: list[bytes], place: int, byte: int) -> None:
    """A record cut or changed at any place leaves its neighbours as they are."""
    changed = values[0][: place % (len(values[0]) + 1)]
    several = [*values, changed, changed + bytes([byte]) + values[0][len(changed) + 1 :], *values]
    check(several, parser().parse(several))


@pytest.mark.long
@pytest.mark.parametrize("shape", EVENT_SHAPES)
def test_ordinary_records_are_plain(shape: str) -> None:
    """No record of the demo's applications is odd, with or without blanks and a line's end."""
    events = EVENT_SHAPES[shape](Draws(f"1/{shape}"), "logs.example")
    bodies = [events.event(AT_MS + at) for at in range(2_000)]
    compact = [orjson.dumps(body) for body in bodies]
    spaced = [json.dumps(body, indent=2).encode() + b"\n" for body in bodies]
    reader = parser(100)
    for values in (compact, spaced):
        assert check(values, reader.parse(values), 100) == {"plain": 2_000}


def test_shapes_that_alternate_are_plain() -> None:
    """Rare fields, keys in another order, nulls and arrays: each record is a row, each value its own."""
    records = [
        b'{"a":1,"b":{"c":"x","d":null},"tags":["x",{"y":"\\u00e9"}]}',
        b'{"b":{"d":2,"c":"y"},"a":"text"}',
        b'{"rare":{"deep":{"er":false}},"a":NaN}',
        b'{"a":1.50,"b":{},"tags":[]}',
        b'{"nothing":{"at":null}}',
        b"{}",
    ]
    parsed = parser().parse(records * 1_000)
    assert not len(parsed.odd)
    assert rows(parsed) == 1_000 * [
        {("a",): "1", ("b", "c"): "x", ("tags",): '["x",{"y":"\\u00e9"}]'},
        {("a",): "text", ("b", "c"): "y", ("b", "d"): "2"},
        {("a",): "NaN", ("rare", "deep", "er"): "false"},
        {("a",): "1.50", ("b",): "{}", ("tags",): "[]"},
        {},
        {},
    ]
    assert {column.route: column.kinds for column in parsed.columns} == {
        ("a",): INTEGER | TEXT | NON_FINITE | DECIMAL,
        ("b", "c"): TEXT,
        ("tags",): ARRAY,
        ("b", "d"): INTEGER,
        ("rare", "deep", "er"): BOOLEAN,
        ("b",): EMPTY_OBJECT,
    }


def test_a_column_without_values_is_none() -> None:
    """Keys of odd records, and those of calls before, leave no column."""
    reader = parser()
    reader.parse([b'{"before":1}'])
    parsed = reader.parse([b'{"a":1}', b'{"a":2,"odd":3', b'{"a":null,"null":null}'])
    assert [(column.route, column.values.to_pylist()) for column in parsed.columns] == [(("a",), ["1", None])]
    assert (parsed.plain.tolist(), parsed.odd.tolist()) == ([0, 2], [1])


def test_records_are_read_out_of_a_larger_buffer() -> None:
    """Any buffer serves, from any place on; a record's end is where it is said to be."""
    data = b'xx{"a":1}{"a":22}yy'
    for buffer in (
        data,
        bytearray(data),
        memoryview(data),
        pa.py_buffer(data),
        np.frombuffer(data, np.uint8),
    ):
        parsed = parser().parse_buffer(buffer, np.array([9, 17]), 2)
        assert parsed.columns[0].values.to_pylist() == ["1", "22"]
    every_second = np.arange(40, dtype=np.int64)[9:18:8]
    assert parser().parse_buffer(data, every_second, 2).columns[0].values.to_pylist() == ["1", "22"]
    assert parser().parse_buffer(data, [8, 17], 2).odd.tolist() == [0, 1]
    assert parser().parse_buffer(b"", []).columns == []


@pytest.mark.parametrize(
    ("ends", "begin"),
    [([5, 4], 0), ([3], 4), ([20], 0), ([-1], 0), ([2], -1), ([2**62], 0), ([1] * (ROWS_MAX + 1), 0)],
)
def test_ends_outside_of_the_buffer_are_refused(ends: list[int], begin: int) -> None:
    """Nothing beside the buffer is read, whatever the numbers are."""
    with pytest.raises(ValueError, match="ends that do not ascend"):
        parser().parse_buffer(b'{"a":1,"b":2}', ends, begin)


@pytest.mark.long
def test_a_call_beside_another_is_refused() -> None:
    """Two threads with one parser get an error instead of each other's columns."""
    reader, is_refused = parser(), threading.Event()
    large = [b'{"a":[' + b" " * 2**26 + b"]}"]
    refused = []

    def read(record: list[bytes]) -> None:
        while not is_refused.is_set():
            try:
                reader.parse(record)
            except RuntimeError as error:  # whichever of the two came second
                refused.append(str(error))
                is_refused.set()

    thread = threading.Thread(target=read, args=(large,))
    thread.start()
    read([b'{"b":1}'])
    thread.join()
    assert set(refused) == {"another thread is using this parser: each thread needs one of its own"}
    assert reader.parse([b'{"b":1}']).columns[0].route == ("b",)


def test_columns_outlive_their_parser() -> None:
    """Arrow's buffers are the columns' own, and are given back with the last of them."""
    before = parser().parse([b'{"a":"x","b":"y"}'] * 1_000).columns
    gc.collect()
    for column in before:
        column.values.validate(full=True)
        assert column.values.to_pylist() == ["x" if column.route == ("a",) else "y"] * 1_000


@pytest.mark.long
def test_keys_are_learned_anew_where_there_are_too_many() -> None:
    """More keys than a parser holds: values stay right, also those of keys learned before."""
    reader, number = parser(), 0
    for _ in range(60):
        values = [b'{"same":%d,"k%d":{"x":"%d"}}' % (at, number + at, at) for at in range(1_000)]
        number += 1_000
        parsed = reader.parse(values)
        assert not len(parsed.odd)
        assert rows(parsed)[7] == {("same",): "7", (f"k{number - 993}", "x"): "7"}


def test_a_defect_of_the_core_costs_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the core fails, every record is left to the exact path."""
    reader = parser()

    class Failing:
        firn_json_parse = staticmethod(lambda *_: Status.PANICKED)

    monkeypatch.setattr(reader, "_functions", Failing())
    parsed = reader.parse([b'{"a":1}', b'{"a":2}'])
    assert (parsed.plain.tolist(), parsed.odd.tolist(), parsed.columns) == ([], [0, 1], [])


@pytest.mark.long
def test_hostile_records_stay_within_the_stated_memory() -> None:
    """Floods of keys, columns, depth and escapes, under a limit that ends the process where it is passed."""
    told = in_a_process("hostile_json")
    assert told["records"] > 200_000


@pytest.mark.long
def test_many_calls_take_no_more_memory_than_few() -> None:
    """What a call allocates is given back when its columns are gone."""
    reader, values = parser(), list(islice(Generator(SEED).records(), 200))
    sizes = []
    for _ in range(3):
        for _ in range(300):
            reader.parse(values)
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4_096)
    assert sizes[2] - sizes[1] < 4_000_000


@pytest.mark.long
@pytest.mark.datasets
def test_every_record_of_the_data_sets_gives_what_the_exact_path_gives(datasets: Path) -> None:
    """Real JSON is plain but for what may carry several records, and equal to the last value."""
    paths = sorted([*datasets.glob("*.jsonl.zst"), *datasets.glob("shippers/*.jsonl")])
    assert len(paths) > 15
    for path in paths:
        bodies = _bodies(path)
        reader, odd = parser(100), Counter[str]()
        for first in range(0, len(bodies), CHUNK):
            values = bodies[first : first + CHUNK]
            odd += check(values, reader.parse(values), 100)
        strange = odd.total() - odd["plain"] - odd["may carry several records"]
        assert strange <= (0 if path.suffix == ".zst" else odd["rejected: undecodable"]), (path.name, odd)


def _bodies(path: Path) -> list[bytes]:
    """The messages of a file: a line of a log each, or what was captured of a shipper."""
    if path.suffix == ".zst":
        return zstandard.decompress(path.read_bytes(), max_output_size=2**30).splitlines()
    messages = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    return [
        base64.b64decode(each["value_base64"]) if "value_base64" in each else each["value"].encode()
        for each in messages
    ]
