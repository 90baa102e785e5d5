"""Requests that nobody meant: generated from the OpenAPI document, nested without end, larger than memory,
with names of every kind."""

import itertools
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from catalog.commit.requirements import _TABLE_CHECKS, _VIEW_CHECKS
from catalog.commit.updates import UPDATES
from catalog.commit.view_changes import _UPDATES as VIEW_ACTIONS
from catalog.http.routes.request_schemas import (
    TABLE_REQUIREMENTS,
    TABLE_UPDATES,
    VIEW_REQUIREMENTS,
    VIEW_UPDATES,
)
from tests.catalog.conftest import Server
from tests.catalog.support.table_requests import JSON, create_body

pytestmark = pytest.mark.stack

Json = dict[str, Any]
# In every run of the tests half of the operations on each database; the long proof has all on both.
WHOLE = "FIRN_CATALOG_REQUESTS" in os.environ
REQUESTS = int(os.environ.get("FIRN_CATALOG_REQUESTS", "15"))
PER_ROUND = max(1, REQUESTS // 250)  # more of one kind at once are cheaper
SEED = int(os.environ.get("FIRN_TEST_SEED", "1"))
KNOWN = {"namespace": "a", "table": "t", "view": "v", "lease": "l", "task": "x", "dropped": "1", "key": "k"}
REQUEST_BYTES_MAX = 8_000_000
DEEP = 100_000


def furnish(client: httpx.Client) -> None:
    """Things for generated requests to meet; those that are still there are refused."""
    client.post("/v1/namespaces", json={"namespace": ["a"]})
    client.post("/v1/namespaces/a/tables", json=create_body("t"))


@pytest.mark.timeout(3_600)
def test_no_generated_request_breaks_the_server(
    server: Server, client: httpx.Client, database_kind: str
) -> None:
    """Valid and invalid requests of every operation, on things that exist and that do not, are answered
    without a 5xx, refusals in Iceberg's form."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    if not WHOLE:
        operations = operations[("sqlite", "postgres").index(database_kind) :: 2]
    sent: list[int] = []
    rounds = itertools.count()
    with requests.Session() as session:
        while len(sent) < REQUESTS:
            for operation in operations:
                furnish(client)
                send_all(operation, session, server.url, next(rounds), sent)


def send_all(operation: Any, session: requests.Session, url: str, number: int, sent: list[int]) -> None:
    """Sends some requests of an operation, valid and invalid ones, to what is there and what is not, and
    looks at each answer."""
    known = {name: value for name, value in KNOWN.items() if f"{{{name}}}" in operation.path}
    paths = [known or None, None] if WHOLE and known else [known or None]
    for mode, parameters in itertools.product(GenerationMode, paths):

        @seed(SEED * 1_000 + number)
        @settings(
            max_examples=PER_ROUND,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode, path_parameters=parameters))
        def run(case: Any) -> None:
            answer = case.call(base_url=url, session=session)
            sent.append(answer.status_code)
            what = f"{case.as_curl_command()}\n{answer.status_code} {answer.text[:500]}"
            assert answer.status_code < 500, what
            if (
                answer.status_code >= 400
                and case.method.upper() != "HEAD"
                and "/oauth/" not in case.operation.path
            ):
                assert answer.json()["error"]["message"], what

        with suppress(Unsatisfiable):  # an operation that takes nothing cannot be given anything invalid
            run()


def test_the_document_names_every_update_and_requirement() -> None:
    """Strangers find in the OpenAPI document what a commit may hold: exactly what the code takes."""
    assert set(TABLE_UPDATES) == set(UPDATES)
    assert set(VIEW_UPDATES) == set(VIEW_ACTIONS)
    assert set(TABLE_REQUIREMENTS) == {*_TABLE_CHECKS, "assert-create"}
    assert set(VIEW_REQUIREMENTS) == {*_VIEW_CHECKS, "assert-create"}


# ---- deep and huge


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A live catalog that reads request bodies up to 8 MB."""
    folder = tmp_path_factory.mktemp("small")
    server = Server(
        folder,
        f"sqlite:///{folder}/catalog.db",
        environment={"FIRN_CATALOG_HTTP__REQUEST_BYTES_MAX": str(REQUEST_BYTES_MAX)},
    )
    try:
        yield server.start()
    finally:
        server.stop()


def peak_bytes(server: Server) -> int:
    """The most memory the server has ever held."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1_024


def deep_bodies() -> dict[str, bytes]:
    return {
        "open lists": b"[" * DEEP,
        "closed lists": b"[" * DEEP + b"]" * DEEP,
        "open objects": b'{"a":' * DEEP,
        "a value in an object": b'{"requirements":[],"updates":' + b"[" * DEEP + b"]" * DEEP + b"}",
        "less than the parser's limit": b'{"namespace":["x"],"properties":{},"updates":'
        + b'{"a":' * 900
        + b"1"
        + b"}" * 900
        + b"}",
        "a task's record": b'{"tasks":[{"id":"d","kind":"k","state":"s","version":0,"record":'
        + b"[" * 300
        + b"]" * 300
        + b"}]}",
    }


@pytest.mark.parametrize("name", deep_bodies())
def test_deep_bodies_are_refused(small_server: Server, name: str) -> None:
    """A body nested without end gets 400 and a sentence from every route that takes one, and costs no
    memory."""
    body = deep_bodies()[name]
    with small_server.client() as client:
        furnish(client)
        paths = client.get("/openapi.json").json()["paths"]
        taking = [path for path, methods in paths.items() if "requestBody" in methods.get("post", {})]
        before = peak_bytes(small_server)
        for path in taking:
            filled = path.format(**KNOWN)
            response = client.post(filled, content=body, headers=JSON)
            assert response.status_code == 400, filled
            assert len(response.json()["error"]["message"]) > 10
        assert peak_bytes(small_server) - before < 30_000_000
        assert client.get("/readyz").status_code == 200


def in_chunks(chunk: bytes) -> bytes:
    return f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n"


@pytest.mark.parametrize(
    ("header", "wrap"),
    [("Content-Length: 200000000", bytes), ("Transfer-Encoding: chunked", in_chunks)],
    ids=["declared", "chunked"],
)
def test_huge_bodies_are_refused(small_server: Server, header: str, wrap: Callable[[bytes], bytes]) -> None:
    """200 MB of JSON get 413, whether their length was declared or not, and the server never holds more than
    it may read."""
    with small_server.client() as client:
        furnish(client)
    before = peak_bytes(small_server)
    part = wrap(b'{"a":"' + b"x" * 999_994)
    with socket.create_connection(("127.0.0.1", small_server.port), timeout=30) as connection:
        connection.sendall(
            b"POST /v1/namespaces/a/tables/t HTTP/1.1\r\nHost: localhost\r\n"
            + f"Content-Type: application/json\r\n{header}\r\n\r\n".encode()
        )
        with suppress(BrokenPipeError, ConnectionResetError):  # the server need not listen to the end
            for _ in range(200):
                connection.sendall(part)
        answer = connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 413"), answer[:200]
    assert b"http.request_bytes_max" in answer
    assert peak_bytes(small_server) - before < 4 * REQUEST_BYTES_MAX


def test_many_small_values_are_refused(small_server: Server) -> None:
    """A body within the limit of bytes that would take many times its size in memory gets 413."""
    before = peak_bytes(small_server)
    with small_server.client() as client:
        response = client.post(
            "/firn/v1/commits", content=b'{"commits":[' + b"0," * 3_990_000 + b"0]}", headers=JSON
        )
        assert response.status_code in (400, 413)
    assert peak_bytes(small_server) - before < 200_000_000


# ---- names


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.text(min_size=1, max_size=40)
    | st.text(alphabet="./\\'\"%+?#&= \x00\x1f\n\t~*:;<>|`$\u202e\u2028e\u0301é💥", min_size=1, max_size=12)
)
def test_any_name_is_kept_exactly_or_refused(client: httpx.Client, name: str) -> None:
    """Whatever text names a namespace and a table: it comes back as it went in, under the same path, or it
    gets 400 and leaves nothing behind."""
    response = client.post("/v1/namespaces", content=orjson.dumps({"namespace": [name]}), headers=JSON)
    path = f"/v1/namespaces/{quote(name, safe='')}"
    if response.status_code == 400:
        assert [name] not in client.get("/v1/namespaces").json()["namespaces"]
        return
    assert response.status_code in (200, 409), response.text
    assert client.get(path).json()["namespace"] == [name]
    created = client.post(f"{path}/tables", content=orjson.dumps(create_body(name)), headers=JSON)
    assert created.status_code in (200, 409), created.text
    assert client.get(f"{path}/tables").json()["identifiers"] == [{"namespace": [name], "name": name}]
    assert client.get(f"{path}/tables/{quote(name, safe='')}").status_code == 200
