"""Bodies of requests, read before the framework sees them and never further than a limit."""

import asyncio
from typing import Any

from lake import http_metrics
from lake.http_guard import send_refusal


class BoundedBody:
    """The ASGI application with bodies of at most `bytes_max`, each there in `timeout_s`. The caller is known
    before this reads anything."""

    def __init__(self, app: Any, bytes_max: int, timeout_s: float) -> None:
        self._app = app
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > self._bytes_max:
            await self._too_large(send)
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._read(receive)
        except TimeoutError:
            await _refuse(
                send,
                408,
                "slow_request",
                f"the request took longer than {self._timeout_s:,.0f} s to arrive; send it again, faster",
            )
            return
        except _GoneError:
            return
        if body is None:
            await self._too_large(send)
            return
        given = False

        async def replay() -> Any:
            nonlocal given
            if given:
                return await receive()  # what comes now is that the caller leaves
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _read(self, receive: Any) -> bytes | None:
        """The body; None where it is too large."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _GoneError
            body += message.get("body", b"")
            if len(body) > self._bytes_max:
                return None
            if not message.get("more_body", False):
                return bytes(body)

    async def _too_large(self, send: Any) -> None:
        await _refuse(
            send,
            413,
            "too_large",
            f"the request is larger than {self._bytes_max:,} bytes; send less at once, or raise "
            "http.request_bytes_max",
        )


class _GoneError(Exception):
    """The caller left in the middle of its request."""


def _has_body(scope: Any) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


async def _refuse(send: Any, status: int, why: str, sentence: str) -> None:
    http_metrics.REFUSED.labels(why).inc()
    await send_refusal(send, status, sentence)
