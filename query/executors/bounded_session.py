"""HTTP with answers of bounded size: a row of a table may be as large as a table."""

from typing import Any

import requests

RESPONSE_BYTES_MAX = 64 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024


class TooLargeError(requests.RequestException):
    """An answer was not read to its end."""


class BoundedSession(requests.Session):
    """A session that reads at most `bytes_max` bytes of an answer, counted after decompression. Raises
    TooLargeError."""

    def __init__(self, bytes_max: int = RESPONSE_BYTES_MAX) -> None:
        super().__init__()
        self._bytes_max = bytes_max

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        response = super().send(request, **{**options, "stream": True})
        blocks: list[bytes] = []
        size = 0
        for block in response.iter_content(_BLOCK_BYTES):
            size += len(block)
            if size > self._bytes_max:
                response.close()
                raise TooLargeError(f"one part of the answer has more than {self._bytes_max:,} bytes")
            blocks.append(block)
        response._content = b"".join(blocks)
        return response
