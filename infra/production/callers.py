"""Whether anybody is let in without a key, and by which ports others come."""

from collections.abc import Iterator

import httpx

from infra.production.finding import Finding, ok, unknown, unsafe, warning
from infra.production.rooms import Rooms
from lake.listening import is_loopback
from lake.tls import tls_context

NAME = "callers"
ANSWER_S = 10.0


def look(rooms: Rooms) -> Iterator[Finding]:
    """Asks the catalog without a key."""
    settings = rooms.catalog
    yield judge_port(settings.http.host, has_tls=bool(settings.tls.certificate))
    uri = rooms.ingest.catalog.uri
    answer = httpx.get(f"{uri.rstrip('/')}/v1/config", timeout=ANSWER_S, verify=tls_context())
    yield judge(uri, answer.status_code)


def judge(uri: str, status: int) -> Finding:
    """`status`: of the catalog's answer to a caller without a key."""
    if status in (401, 403):
        return ok(NAME, f"the catalog at {uri} asks callers for a key")
    if status == 200:
        return unsafe(
            NAME,
            f"the catalog at {uri} lets callers in without a key, who may do everything; create keys",
            "(python -m catalog key create) and start it without --anonymous",
        )
    return unknown(
        NAME, f"the catalog at {uri} answers a caller without a key with {status}; ask again when it is well"
    )


def judge_port(host: str, *, has_tls: bool) -> Finding:
    """`host`: where the catalog listens."""
    if is_loopback(host) or has_tls:
        return ok(NAME, f"the catalog listens on {host}, {'with' if has_tls else 'without'} TLS")
    told = (
        f"the catalog listens on {host} without TLS; set catalog.tls.certificate and catalog.tls.key, or let"
    )
    return warning(NAME, f"{told} others reach it through a proxy with TLS alone")
