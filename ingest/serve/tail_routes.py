"""Live tail as server-sent events (WHATWG HTML, "Server-sent events")."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from ingest.dead_letters.dead_letters import known_stream, known_tenant
from ingest.serve.answers import BusyError
from ingest.serve.live_tail import LiveTail, TailEvent, TailFilter, words_of

router = APIRouter(prefix="/v1", tags=["tail"])
POLL_S = 0.1
# Also how soon a caller that has gone without a word is noticed.
KEEP_ALIVE_S = 5.0


@router.get("/tail", response_class=StreamingResponse)
async def tail(
    request: Request,
    tenant: Annotated[str, Query(max_length=400)],
    stream: Annotated[str | None, Query(max_length=400)] = None,
    q: Annotated[
        str, Query(max_length=1_000, description="words that a record has to hold, in any case")
    ] = "",
) -> StreamingResponse:
    """A tenant's records as they reach Kafka, from now on. Events: open, record, rejected, dropped, skipped,
    failed."""
    wanted = TailFilter(known_tenant(tenant), None if stream is None else known_stream(stream), words_of(q))
    state = request.app.state.serve
    if state.tails >= state.tools.settings.serve.tails_max:
        raise BusyError(
            f"{state.tails} live tails run already, serve.tails_max allows no more; close one, or try "
            "again later"
        )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _events(state, LiveTail(state.tools.settings, wanted)),
        media_type="text/event-stream",
        headers=headers,
    )


async def _events(state: Any, live: LiveTail) -> AsyncIterator[bytes]:
    """The events until the caller leaves, which ends this generator."""
    state.tails += 1
    try:
        live.start()
        said_s = time.monotonic()
        while live.alive:
            events = live.queue.take()
            now_s = time.monotonic()
            if events:
                yield b"".join(map(_encoded, events))
                said_s = now_s
            elif now_s - said_s > KEEP_ALIVE_S:
                yield b": nothing new\n\n"
                said_s = now_s
            await asyncio.sleep(POLL_S)
        yield b"".join(map(_encoded, live.queue.take()))
    finally:
        live.stop()
        state.tails -= 1


def _encoded(event: TailEvent) -> bytes:
    return b"event: " + event.kind.encode() + b"\ndata: " + orjson.dumps(event.data) + b"\n\n"
