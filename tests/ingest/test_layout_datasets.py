"""Every message of the real data sets and of every shipper is stored as the definition says."""

import base64
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import zstandard

from ingest.convert import json_records
from lake.settings import FormatName
from tests.ingest.support.conversion import converted, in_order, without_core
from tests.ingest.support.definition import check, decoded

pytestmark = pytest.mark.datasets

FLUSH_MESSAGES = 6_000
# Of a file with more messages, one of so many; the long proof looks at each.
ONE_OF = int(os.environ.get("FIRN_ONE_OF", "10"))


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


@pytest.mark.long
@pytest.mark.parametrize("form", ["auto", "text"])
def test_records_of_every_file_are_stored_as_defined(
    datasets: Path, form: FormatName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value by value, whatever the file holds; as JSON and the like, and once more as lines of text. Without
    the core, too: all of it is the same."""
    paths = sorted([*datasets.glob("*.zst"), *datasets.glob("shippers/*.jsonl")])
    assert len(paths) > 20
    for path in paths:
        bodies, records = _bodies(path), 0
        if path.suffix == ".zst":
            bodies = islice(bodies, 0, None, ONE_OF)
        while part := list(islice(bodies, FLUSH_MESSAGES)):
            result = check(part, form)
            with monkeypatch.context() as patched:
                without_core(patched)
                patched.setattr(json_records, "decode", decoded)
                assert in_order(converted(part, form)) == in_order(result), path.name
            records += result.rows.num_rows + len(result.rejected)
        assert records >= 4, path.name
        decoded.cache_clear()
