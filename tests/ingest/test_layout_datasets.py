"""Every message of the real data sets and of every shipper: the fast path stores what the exact path
stores."""

import base64
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from ingest.convert.work import Converted
from ingest.decode.formats.rejected_record import RejectedRecord
from lake.errors import Rejected
from lake.log_schema import INDEX, OFFSET
from lake.settings import FormatName
from tests.ingest.support.conversion import by_exact_path, converted

pytestmark = pytest.mark.datasets

FLUSH_MESSAGES = 6_000


def _bodies(path: Path) -> Iterator[bytes]:
    """The messages of a file: a line of a log each, or what was captured of a shipper."""
    if path.suffix == ".zst":
        yield from zstandard.decompress(path.read_bytes(), max_output_size=2**30).splitlines()
        return
    for line in path.read_bytes().splitlines():
        message = json.loads(line)
        yield (
            base64.b64decode(message["value_base64"])
            if "value_base64" in message
            else message["value"].encode()
        )


def _columns(result: Converted) -> dict[str, pa.ChunkedArray]:
    """Columns in the order of the records, those without any value left out."""
    if not result.rows.num_rows:
        return {}
    rows = result.rows.sort_by([(OFFSET, "ascending"), (INDEX, "ascending")])
    return {
        name: rows.column(name) for name in rows.column_names if rows.column(name).null_count < rows.num_rows
    }


def _told(rejected: Sequence[tuple[int, Rejected]]) -> list[tuple[int, int, str]]:
    return sorted(
        (place, one.index if isinstance(one, RejectedRecord) else -1, one.reason.value)
        for place, one in rejected
    )


def _check(bodies: list[bytes], form: FormatName) -> int:
    fast = converted(bodies, form)
    with pytest.MonkeyPatch.context() as patch:
        by_exact_path(patch)
        exact = converted(bodies, form)
    ours, theirs = _columns(fast), _columns(exact)
    assert ours.keys() == theirs.keys()
    for name, column in ours.items():
        if not column.equals(theirs[name]):
            at = next(
                at
                for at, pair in enumerate(zip(column.to_pylist(), theirs[name].to_pylist(), strict=True))
                if pair[0] != pair[1]
            )
            pytest.fail(
                f"{name} of row {at}: {column[at]!r} by the fast path, {theirs[name][at]!r} by the exact one"
            )
    assert _told(fast.rejected) == _told(exact.rejected)
    assert (fast.rows_with_errors, fast.new) == (exact.rows_with_errors, exact.new)
    return int(fast.rows.num_rows) + len(fast.rejected)


@pytest.mark.parametrize("form", ["auto", "text"])
def test_both_paths_store_the_same_of_every_file(datasets: Path, form: FormatName) -> None:
    """Column by column, value by value, whatever the file holds; as JSON and the like, and once more as lines
    of text."""
    paths = sorted([*datasets.glob("*.zst"), *datasets.glob("shippers/*.jsonl")])
    assert len(paths) > 20
    for path in paths:
        shapes, bodies, records = JsonReader.of(100), _bodies(path), 0
        while part := list(islice(bodies, FLUSH_MESSAGES)):
            records += _check(part, form, shapes)
        assert records >= 4, path.name
