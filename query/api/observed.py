"""Who is told of a request that has ended: the audit trail, and the metric of searches."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request

from query.api.audited import begun, told_of
from query.api.search_seconds import measure


async def observed(request: Request) -> AsyncIterator[None]:
    """A dependency of every route; what stands behind `yield` runs when the answer has been sent.

    One for both: each generator that FastAPI waits for is a thirtieth of a histogram's time.
    """
    loop, told = asyncio.get_running_loop(), told_of(request)
    began_s = loop.time()
    event = await begun(request)
    try:
        yield
    except BaseException as error:
        told.error = error
        raise
    finally:
        took_s = loop.time() - began_s
        if event is not None:
            event.end(told, took_s)
        measure(request, told.error, took_s)
