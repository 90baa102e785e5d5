"""An answer in lines as the pages read it."""

import orjson
import pytest

from tests.query.support.line_server import line_server
from tests.query.test_remote import ODD
from ui.api_client import ApiClient, ApiError

PROGRESS = b'{"progress":{"files":1,"files_planned":9,"bytes":5,"bytes_planned":90}}\n'


@pytest.mark.long
def test_lines_come_one_by_one_whatever_records_hold() -> None:
    """Characters that end lines elsewhere stay in their texts; the API is asked for lines."""
    rows = orjson.dumps({"rows": [{"message": ODD}], "at": 0}) + b"\n"
    with line_server(200, PROGRESS + rows + b'{"answer":{"rows":[]}}\n') as server:
        lines = list(ApiClient(server.address).watch("/search", {}))
        assert server.accepted == "application/x-ndjson"
    assert [next(iter(line)) for line in lines] == ["progress", "rows", "answer"]
    assert lines[1]["rows"][0]["message"] == ODD


@pytest.mark.long
def test_who_stops_reading_hangs_up() -> None:
    """The server sees at once that nobody waits any more."""
    with line_server(200, PROGRESS, hangs=True) as server:
        told = ApiClient(server.address).watch("/search", {})
        assert "progress" in next(told)
        assert not server.left.is_set()
        told.close()
        assert server.left.wait(20)


@pytest.mark.long
def test_an_error_before_and_after_the_first_line_is_the_same_sentence() -> None:
    """With the place in the query, where it has one."""
    error = {"message": "not so", "position": 3, "length": 2}
    later = PROGRESS + orjson.dumps({"error": error, "status": 400}) + b"\n"
    for status, body in ((400, orjson.dumps({"error": error})), (200, later)):
        with line_server(status, body) as server, pytest.raises(ApiError) as raised:
            list(ApiClient(server.address).watch("/search", {}))
        found = raised.value
        assert (found.status, found.message, found.position, found.length) == (400, "not so", 3, 2)
