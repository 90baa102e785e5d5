"""Uvicorn with an end to patience: who sends no whole request in time, reads no answer, or holds one of too
many connections is hung up on.

Uvicorn itself waits for ever for the rest of a request, and takes headers of any size. Here a connection has
`request_timeout_s` from its opening, or from a request's first byte, to that request's last; and where more
than `connections_max` are open the one goes that has kept the server waiting longest, so that those who open
many and send nothing shut nobody out. A head that is too large is answered with 431 (RFC 6585, section 5).
"""

import resource
from collections.abc import Iterable
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lake import http_metrics
from lake.http_guard import refusal_body
from lake.settings import HttpSettings

HEAD_BYTES_MAX = 64 * 1024  # request line and headers, or trailers
LARGE_HEAD = refusal_body(
    431,
    f"the address and headers of a request may have {HEAD_BYTES_MAX:,} bytes together; send long queries by "
    "POST, in the body",
)
FRAMING_PER_BYTE_MAX = 8
FILES_BESIDE = 512  # descriptors that are no client's connections
TICKS_PER_SWEEP = 10  # of a tenth of a second


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `_asked_s`: since when it owes the rest of a request; `_unread_s`: since when it does
    not read its answer; None: it does not."""

    def connection_made(self, transport: Any) -> None:
        self._limits = cast("BoundedConfig", self.config).limits
        self._asked_s: float | None = self.loop.time()
        self._unread_s: float | None = None
        self._rested_s = self.loop.time()
        self._framing_bytes = 0
        self._in_head = self._refused = False
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections_max:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._asked_s is None and self._is_idle:
            self._asked_s = self.loop.time()
        self._framing_bytes += len(data)
        super().data_received(data)
        if self._framing_bytes > HEAD_BYTES_MAX:
            self._refuse_head()

    def on_message_begin(self) -> None:
        self._asked_s = self.loop.time()
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        # What was no head after all. Of a chunk of a single byte the rest are framing; trailers without end
        # bring no body with them.
        self._framing_bytes = max(0, self._framing_bytes - FRAMING_PER_BYTE_MAX * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._asked_s = None
        self._framing_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._rested_s = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._unread_s = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_s = None
        super().resume_writing()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def is_answering(self) -> bool:
        """Whether a request that came whole is being worked on."""
        return not self._is_idle and not self.cycle.more_body

    def overdue(self, now_s: float) -> str | None:
        """Why it is time to hang up; None where it is not."""
        limit_s = self._limits.request_timeout_s
        if self._unread_s is not None and now_s - self._unread_s > limit_s:
            return "reads_nothing"
        if self._asked_s is not None and now_s - self._asked_s > limit_s and not self.is_answering():
            return "slow_request"
        return None

    def patience(self) -> tuple[bool, float]:
        """Sorts connections that are not being answered: those that owe a request before those that rest
        between two, each the oldest first."""
        return (self._asked_s is None, self._rested_s if self._asked_s is None else self._asked_s)

    def hang_up(self, why: str) -> None:
        """Ends the connection at once, whatever is under way."""
        if not self.transport.is_closing():
            http_metrics.CLOSED.labels(why).inc()
        self.transport.abort()

    def _refuse_head(self) -> None:
        """Says why before anything was answered on this connection. The rest of the head is read and dropped
        until the client leaves or its time is over: who closes on unread bytes takes the answer back (RFC
        9112, section 9.6)."""
        if not (self._in_head and self._is_idle) or self.transport.is_closing():  # a body's framing
            self.hang_up("large_head")
            return
        self._refused = True
        http_metrics.REFUSED.labels("large_head").inc()
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
            "x-content-type-options: nosniff\r\nconnection: close\r\n"
            f"content-length: {len(LARGE_HEAD)}\r\n\r\n"
        )
        self.transport.write(head.encode() + LARGE_HEAD)

    def _make_room(self) -> None:
        others = [
            each
            for each in self.connections
            if isinstance(each, BoundedProtocol) and each is not self and not each.is_answering()
        ]
        leaves = min(others, key=BoundedProtocol.patience, default=self)
        leaves.hang_up("too_many")
        self.connections.discard(leaves)


class BoundedConfig(uvicorn.Config):
    """Uvicorn's settings with our protocol and its limits."""

    def __init__(self, app: Any, limits: HttpSettings, **options: Any) -> None:
        super().__init__(app, http=BoundedProtocol, ws="none", log_config=None, access_log=False, **options)
        self.limits = limits


class BoundedServer(uvicorn.Server):
    """Looks through its connections every second."""

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_SWEEP == 0:
            sweep(self.server_state.connections)
        return await super().on_tick(counter)


def sweep(connections: Iterable[Any]) -> None:
    """Hangs up on those who are overdue."""
    for each in list(connections):
        if isinstance(each, BoundedProtocol) and (why := each.overdue(each.loop.time())) is not None:
            each.hang_up(why)


def bounded_server(app: Any, limits: HttpSettings, *, shutdown_s: int, **options: Any) -> uvicorn.Server:
    """A server for an ASGI application. On SIGTERM answers under way have `shutdown_s` seconds; `options` are
    Uvicorn's."""
    _allow_files(limits.connections_max + FILES_BESIDE)
    return BoundedServer(BoundedConfig(app, limits, timeout_graceful_shutdown=shutdown_s, **options))


def _allow_files(wanted: int) -> None:
    """Every connection is a file descriptor, of which a process has 1,024 by habit and mostly may have
    more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
