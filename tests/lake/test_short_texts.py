"""What is kept of texts that strangers send is bounded in bytes."""

import ast
import re
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingest.changes import connect_schema, message_key, untyped_row
from ingest.changes.change import Cells, RowImage
from ingest.changes.connect_schema import SCHEMA_BYTES_MAX, row_schema
from ingest.changes.message_key import NARROWED_COLUMNS_MAX, key_of_row
from ingest.convert import json_records, line_records
from ingest.decode import column_name, event_time
from ingest.decode.formats import otlp, syslog
from ingest.route.router import Router
from lake import tenant
from lake.errors import Rejected
from lake.settings import TopicSettings
from lake.short_texts import LENGTH_MAX, kept_of_short_texts

ROOT = Path(__file__).parents[2]
# Functions of texts that lru_cache keeps, and why no text of theirs is longer than they can bear.
BOUNDED = {
    ("ingest/changes/unavailable.py", "placeholder"): "a setting",
    ("ingest/decode/event_time.py", "zone"): "a setting",
    ("ingest/decode/event_time.py", "_clf_date"): "what a pattern matched, of one length",
    ("ingest/decode/event_time.py", "_utc_date"): "what a pattern matched, of one length",
    ("ingest/model/source.py", "_place"): "a topic's id, as Kafka gives it",
    ("ingest/schema_registry/avro.py", "_plain"): "a schema of the operator's registry",
    ("ingest/schema_registry/protobuf.py", "_is_descriptor"): "a schema of the operator's registry",
    ("lake/avro.py", "_codec_and_schema"): "eight of them",
    ("lake/avro_bounds.py", "check_schema"): "of a manifest, which is checked against its bound before",
    ("lake/bounds.py", "encoding_of"): "names of types",
    ("lake/confusable.py", "peculiarities"): "a name that was parsed",
    ("lake/confusable.py", "skeleton"): "a name that was parsed",
    ("lake/log_schema.py", "_with_primitives"): "names of columns, which have a limit",
    ("lake/log_schema.py", "_new_log_schema"): "a setting",
    ("lake/log_schema.py", "shared_schema"): "a table's schema, whose columns have a limit",
    ("lake/manifest_schema.py", "entries_schema"): "names of partition fields that Firn writes",
    ("lake/manifest_schema.py", "layout_of"): "of a manifest, which is checked against its bound before",
    ("lake/table_location.py", "_table_location"): "a location that the catalog has checked",
    ("lake/tenant.py", "to_identifier"): "a name that was parsed",
    ("lake/tls.py", "_context"): "settings",
}


def _kept_texts() -> Iterator[tuple[str, str]]:
    """Functions with an argument of text whose results are kept without a look at its length."""
    for path in sorted([*ROOT.glob("ingest/**/*.py"), *ROOT.glob("lake/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            decorators = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
            kinds = " ".join(ast.unparse(each.annotation) for each in node.args.args if each.annotation)
            if decorators & {"lru_cache", "cache"} and re.search(r"\b(str|bytes|Route|Schema)\b", kinds):
                yield path.relative_to(ROOT).as_posix(), node.name


def test_whoever_keeps_texts_says_why_they_are_short() -> None:
    """A new one fails here: use `kept_of_short_texts`, or say what bounds the texts."""
    assert set(_kept_texts()) == BOUNDED.keys()


def test_results_of_short_texts_are_kept_and_those_of_long_ones_are_not() -> None:
    calls: list[str] = []

    @kept_of_short_texts(8)
    def joined(one: str, other: str) -> str:
        calls.append(one + other)
        return one + other

    for _ in range(3):
        assert joined("a" * LENGTH_MAX, "") == "a" * LENGTH_MAX
    assert len(calls) == 1
    for _ in range(3):
        assert joined("a" * LENGTH_MAX, "b") == "a" * LENGTH_MAX + "b"
    assert len(calls) == 4


def test_arguments_that_are_no_texts_have_no_length() -> None:
    calls: list[int] = []

    @kept_of_short_texts(8, lambda arguments: len(arguments[0]))
    def beside(text: str, day: int) -> int:
        calls.append(day)
        return len(text) + day

    assert [beside("a", 10**6), beside("a", 10**6), beside("a" * 300, 1), beside("a" * 300, 1)] == [
        10**6 + 1,
        10**6 + 1,
        301,
        301,
    ]
    assert calls == [10**6, 1, 1]


@pytest.mark.parametrize(
    "function",
    [column_name.is_usable, tenant.parse_tenant, tenant.parse_stream],
    ids=lambda each: each.__name__,
)
def test_names_as_long_as_messages_are_not_kept(function: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are sent would be held: each is let go with the call."""
    assert callable(function)
    held = _Text("n" * 100_000)
    function(held)
    assert _Text.alive == 1
    del held
    assert _Text.alive == 0


class _Text(str):
    """A text that counts how many of it there are."""

    alive = 0

    def __new__(cls, text: str) -> "_Text":
        cls.alive += 1
        return super().__new__(cls, text)

    def __del__(self) -> None:
        type(self).alive -= 1


LONG = "n" * 1_000


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (column_name.column_name, ("a", LONG)),
        (column_name.pointer, (LONG, "a")),
        (untyped_row._column_of, ("", "", LONG)),
        (json_records._place_of, (("a", LONG),)),
        (line_records._placed, (syslog.RFC_5424, f'[{LONG} a="b"]')),
        (event_time.clf_to_iso, (LONG,)),
        (event_time._on_day, (LONG, 20_000, UTC)),
        (syslog.structured_data, (f'[{LONG} a="b"]',)),
        (otlp._quoted, (LONG,)),
        (otlp._column, (LONG,)),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_no_text_of_strangers_is_kept_that_is_long(function: Any, arguments: tuple[Any, ...]) -> None:
    (kept,) = [
        each.cell_contents for each in function.__closure__ if hasattr(each.cell_contents, "cache_info")
    ]
    before = kept.cache_info().currsize
    function(*arguments)
    assert kept.cache_info().currsize == before


def test_types_of_rows_are_held_for_their_keys_up_to_so_many_columns() -> None:
    for number in range(40):
        names = [f"column_{at}" for at in range(4_000)]
        cells = Cells(
            {"column_0": number}, dict.fromkeys(names, "long"), {name: f"/{name}" for name in names}
        )
        assert not isinstance(key_of_row(RowImage(cells), ("column_0",)), Rejected)
        held = sum(len(each.of) for each in message_key._narrowed_by_types.values())
        assert held <= NARROWED_COLUMNS_MAX + len(names)


def test_a_router_keeps_names_of_tables_alone() -> None:
    router = Router(TopicSettings(name="logs", tenant=("header:tenant",)))
    found = [router.target(None, (("tenant", b"n" * 100_000),), None) for _ in range(2)]
    assert found[0] == found[1]
    assert router._tables == {}
    router.target(None, (("tenant", b"shop"),), None)
    assert len(router._tables) == 1


def test_schemas_are_kept_by_their_bytes() -> None:
    """4,096 schemas as long as messages took sixteen gigabytes."""
    kept: Any = connect_schema._kept_schema.cache
    for number in range(60):
        field = {"type": "string", "field": f"{number}{'n' * 200_000}"}
        assert row_schema(orjson.dumps({"type": "struct", "fields": [field]}))
        assert 0 < kept.currsize <= SCHEMA_BYTES_MAX
    assert len(kept) < 60
