"""The API as the command line reads it."""

import orjson
import pytest

from lake.errors import RefusedError, UnavailableError
from query.cli.remote import Remote
from tests.query.support.line_server import line_server

# Each of them ends a line for somebody.
ODD = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"


@pytest.mark.long
def test_a_line_ends_at_a_line_feed_and_nowhere_else() -> None:
    """Records hold all kinds of characters; what follows the last line feed is no line."""
    rows = [{"message": ODD}, {"message": "next"}]
    body = b"".join(orjson.dumps(row) + b"\n" for row in rows) + b'{"message":"broken of'
    with line_server(200, body) as server:
        assert list(Remote(server.address, None).lines("/v1/search/stream", {})) == rows


@pytest.mark.parametrize("status", [400, 503])
@pytest.mark.long
def test_an_error_is_one_sentence(status: int) -> None:
    with line_server(status, b'{"error":{"message":"not so"}}') as server:
        with pytest.raises((RefusedError, UnavailableError), match="not so"):
            list(Remote(server.address, None).lines("/v1/search/stream", {}))
