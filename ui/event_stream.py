"""Server-sent events (WHATWG HTML, "Server-sent events") as the search API writes them: one `event` and one
`data` line each, comments as signs of life."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import httpx

END_OF_EVENT = b"\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `data` is JSON that nobody has looked at."""

    kind: str
    data: bytes


class EventStream:
    """The events of one answer, until it ends or until somebody hangs up, in whatever thread."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[list[Event]]:
        """What came together; nothing where the server says that it is alive. Raises httpx.HTTPError."""
        rest = b""
        for part in self._response.iter_bytes():
            *whole, rest = (rest + part).split(END_OF_EVENT)
            yield [event for event in map(_event, whole) if event is not None]

    def hang_up(self) -> None:
        """Wakes whoever waits for the next event; closing the connection alone would not."""
        connection = self._response.extensions["network_stream"].get_extra_info("socket")
        with suppress(OSError):  # it has ended already
            connection.shutdown(socket.SHUT_RDWR)


def _event(text: bytes) -> Event | None:
    """The event of one block; None for a comment."""
    kind, data = "", b""
    for line in text.split(b"\n"):
        name, _, value = line.partition(b": ")
        if name == b"event":
            kind = value.decode(errors="replace")
        elif name == b"data":
            data = value
    return Event(kind, data) if kind else None
