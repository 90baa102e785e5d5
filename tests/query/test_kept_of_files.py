"""The engine in the process does not keep something of every file that it has ever read."""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

from query.executors import embedded
from query.executors.embedded import EmbeddedExecutor
from query.executors.executor import Source, from_source
from query.executors.kept_of_files import COLUMN_BYTES, KeptOfFiles
from query.files.file_index import LiveFile
from query.model.cancellation import Run
from tests.query.support.one_file import OneFile, one_file

COUNT = exp.select("count(*)").from_(from_source())
ROWS = 3_000


@pytest.fixture
def one(tmp_path: Path) -> OneFile:
    return one_file(tmp_path, ROWS, seed=1)


def _copies(one: OneFile) -> Iterator[Source]:
    """The same rows in one new file after the other."""
    (file,) = one.source.files
    path = Path(file.uri.removeprefix("file://"))
    for at in range(100):
        copy = path.with_name(f"copy-{at}.parquet")
        copy.write_bytes(path.read_bytes())
        yield replace(one.source, files=[replace(file, uri=f"file://{copy}")])


def _streamed(engine: EmbeddedExecutor, source: Source, select: exp.Select) -> Generator[list[Any]]:
    yield from engine.stream(source, select, Run(60.0), rows_at_once=10)


def _read(engine: EmbeddedExecutor, copies: Iterator[Source], count: int) -> None:
    """So many more files."""
    for _ in range(count):
        assert engine.fetch(next(copies), COUNT, Run(60.0)).rows == [(ROWS,)]


def _database(engine: EmbeddedExecutor) -> object:
    assert engine._shared is not None
    return engine._shared.connection


def test_after_so_many_files_the_next_database_begins(one: OneFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for files that it knows; statements of the one before go on."""
    columns = len(one.source.view.schema.columns)
    monkeypatch.setattr(embedded, "KEPT_PART", (64 << 20) // (COLUMN_BYTES * columns * 3))
    settings = one.engine._settings.changed(embedded__memory_bytes=64 << 20)
    engine = EmbeddedExecutor(settings, one.engine._local_paths, one.engine._roots_of)
    copies = _copies(one)
    first = next(copies)
    rows = exp.select(exp.column("message")).from_(from_source())
    with closing(_streamed(engine, first, rows)) as stream:
        before = next(stream)
        of_first = _database(engine)
        for _ in range(20):
            assert engine.fetch(first, COUNT, Run(60.0)).rows == [(ROWS,)]
        assert _database(engine) is of_first
        _read(engine, copies, 4)
        second = _database(engine)
        assert second is not of_first
        # Whoever takes rows slowly does not have ever more databases stay.
        _read(engine, copies, 12)
        assert _database(engine) is second
        assert len(before) + sum(map(len, stream)) == ROWS
    assert engine._before is None
    _read(engine, copies, 1)
    assert _database(engine) is not second


def test_what_is_kept_goes_by_columns_and_row_groups() -> None:
    small = LiveFile("a", 10, 1, 0, 1, None, None, None, None)
    kept = KeptOfFiles(5 * COLUMN_BYTES)
    kept.note([small, small], 4)
    assert not kept.is_too_much
    kept.note([replace(small, uri="b", value_counts={1: 10})], 4)
    assert not kept.is_too_much
    kept.note([replace(small, uri="c", rows=1_000_000, value_counts={1: 10})], 4)
    assert kept.is_too_much
