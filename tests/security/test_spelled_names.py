"""Names of others, spelled so that a check might read another name than what is opened: case, Unicode,
percent encoding, dots, separators, prefixes, parameters given twice."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import httpx
import orjson
import pytest

from lake.catalog_client import CatalogClient
from lake.tenant import SYSTEM_TENANT, to_identifier
from tests.query.support.guarded import START, Guarded
from tests.query.support.log_table import LogTable
from tests.security.support.asking import sent_as_it_is
from tests.security.support.markers import Markers

pytestmark = pytest.mark.stack
OWN = "spelled"
# Those that begin like it, hold it, look or sound like it; and Firn's own.
OTHERS = (
    "spelled_eu",
    "Spelled",
    "spell",
    "spelled.logs",
    "ｓpelled",
    "spelled/../spelled-b",
    SYSTEM_TENANT.name,
)
STREAM = "ledger"
WORD = "none-but-its-owner-reads-this"
OWN_WORD = "of-the-speller-itself"
RANGE = {"from": "2026-09-01", "to": "2026-09-02"}
# The long proof asks all; else each kind of request is asked about some of the spellings.
EVERY = 1 if os.environ.get("FIRN_PROVE") else 5
Ask = tuple[str, str, bytes | None]


@dataclass(frozen=True)
class Spelling:
    """The services, the key of `OWN`, and what gives the others away."""

    catalog: str
    api: str
    key: str
    admin: str
    markers: Markers

    def send(self, address: str, ask: Ask, key: str) -> httpx.Response:
        """Asks with a key."""
        method, target, body = ask
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        return sent_as_it_is(address, method, target, headers, body)

    def leaks(self, address: str, asks: list[Ask]) -> list[str]:
        """Requests with `OWN`'s key whose answers hold anything of others; none may break the service."""
        found = []
        for ask in asks:
            answer = self.send(address, ask, self.key)
            assert answer.status_code not in (500, 502), (ask, answer.text)
            if told := self.markers.found_in(answer, named=True):
                found.append(f"{ask}: {answer.status_code}: {told}")
        return found


@pytest.fixture(scope="module")
def spelling(keyed: Guarded, catalog_client: CatalogClient) -> Spelling:
    """A tenant with a write key, and others whose names could be taken for its own."""
    texts = {WORD}
    for tenant in (OWN, *OTHERS):
        table = LogTable(catalog_client, tenant, STREAM)
        table.append([{"timestamp": START, "message": OWN_WORD if tenant == OWN else f"{WORD} {tenant}"}])
        if tenant != OWN:
            texts |= Markers.of(table, WORD).texts
    made = keyed.catalog.address
    bound = {"scope": "write", "namespace": [to_identifier(OWN)]}
    headers = {"Authorization": f"Bearer {keyed.keys['admin']}"}
    answer = httpx.post(f"{made}/firn/v1/keys", json=bound, headers=headers, trust_env=False)
    key = str(answer.raise_for_status().json()["key"])
    return Spelling(made, keyed.api.address, key, keyed.keys["admin"], Markers(frozenset(texts), frozenset()))


def spellings(tenant: str) -> list[str]:
    """A tenant's name and namespace, plain and through the speller's own."""
    space, own = to_identifier(tenant), to_identifier(OWN)
    return [
        tenant,
        space,
        space.upper(),
        tenant.swapcase(),
        f'"{space}"',
        f" {space} ",
        f"{space}.",
        f"{own}.{space}",
        f"{own}\x1f{space}",
        f"{space}\x1f{own}",
        f"{own}/../{space}",
        f"../{space}",
        f"{own}\x00{space}",
        f"{space}\x00",
        f"{own};{space}",
        f"{own},{space}",
    ]


def encoded(name: str) -> list[str]:
    """A name as part of a path or a query: whole, with slashes and dots as they are, and encoded twice."""
    once = quote(name, safe="")
    return list(
        dict.fromkeys([once, quote(name, safe="/.,;"), quote(once, safe=""), once.replace(".", "%2e")])
    )


def of_catalog(name: str) -> list[Ask]:
    """What the Iceberg REST catalog tells of a namespace and its tables, however it is named."""
    asks: list[Ask] = []
    for part in encoded(name):
        asks += [
            ("GET", f"/v1/namespaces/{part}", None),
            ("GET", f"/v1/namespaces/{part}/tables", None),
            ("GET", f"/v1/namespaces/{part}/tables/{STREAM}", None),
            ("GET", f"/v1/namespaces/{to_identifier(OWN)}/tables/{part}%1F{STREAM}", None),
            ("GET", f"/v1/namespaces/{to_identifier(OWN)}/../{part}/tables/{STREAM}", None),
            ("GET", f"/v1/{part}/namespaces", None),
            ("GET", f"/v1/config?warehouse={part}", None),
            ("GET", f"/v1/namespaces?parent={part}", None),
            ("GET", f"/firn/v1/dropped-tables?namespace={part}", None),
        ]
    for levels in ([name], [to_identifier(OWN), name], [name, to_identifier(OWN)]):
        wanted = {"identifiers": [{"namespace": levels, "name": STREAM}]}
        asks.append(("POST", "/firn/v1/loads", orjson.dumps(wanted)))
    return asks


def of_api(name: str) -> list[Ask]:
    """What the API reads of a tenant, however it is named: in a query, in a body, twice, as a stream, in
    SQL."""
    asks: list[Ask] = []
    for part in encoded(name)[:2]:
        for query in (f"tenant={part}", f"tenant={OWN}&tenant={part}", f"tenant={part}&tenant={OWN}"):
            asks += [
                ("GET", f"/v1/streams?{query}", None),
                ("GET", f"/v1/search?{query}&stream={STREAM}&from=2026-09-01&to=2026-09-02", None),
                ("GET", f"/v1/usage?{query}", None),
            ]
        asks.append(("GET", f"/v1/streams/detail?tenant={OWN}&stream={part}%2F{STREAM}", None))
    first, second = (orjson.dumps({"tenant": each, "stream": STREAM, **RANGE}) for each in (OWN, name))
    twice = [a[:-1] + b"," + b[1:] for a, b in ((first, second), (second, first))]
    streams = (f"{name}.{STREAM}", f"../{name}/{STREAM}", f"{name}\x1f{STREAM}")
    inside = [orjson.dumps({"tenant": OWN, "stream": each, **RANGE}) for each in streams]
    asks += [("POST", "/v1/search", body) for body in (second, *twice, *inside)]
    doubled = name.replace('"', '""')
    for table in (
        f'{name}."{STREAM}"',
        f'"{doubled}".{STREAM}',
        f'lake."{doubled}".{STREAM}',
        f'"{doubled}.{STREAM}"',
    ):
        sql = {"tenant": OWN, "sql": f"SELECT * FROM {table}"}
        asks.append(("POST", "/v1/sql", orjson.dumps(sql)))
    return asks


@pytest.mark.timeout(900)
@pytest.mark.parametrize("service", ["catalog", "api"])
def test_no_spelling_reaches_another_tenant(
    spelling: Spelling, service: str, record_property: Callable[[str, object], None]
) -> None:
    """Whatever is spelled, no row, file, location or id of another tenant comes back."""
    address, of_service = (spelling.catalog, of_catalog) if service == "catalog" else (spelling.api, of_api)
    asks = [ask for tenant in OTHERS for name in spellings(tenant) for ask in of_service(name)]
    assert len(asks) > 1_000
    leaks = spelling.leaks(address, asks[::EVERY])
    record_property("cross_tenant_leaks", len(leaks))
    assert leaks == []


def test_an_administrator_is_told_by_the_same_requests(spelling: Spelling) -> None:
    """Of every other tenant by the catalog and by the API: the requests themselves are right ones."""
    for tenant in OTHERS:
        space = to_identifier(tenant)
        for address, asks in ((spelling.catalog, of_catalog(space)), (spelling.api, of_api(tenant))):
            answers = (spelling.send(address, ask, spelling.admin) for ask in asks)
            assert any(spelling.markers.found_in(answer) for answer in answers), (tenant, address)


def test_the_speller_reads_its_own(spelling: Spelling) -> None:
    """The key is in force, and shut out of what is not its own alone."""
    body = orjson.dumps({"tenant": OWN, "stream": STREAM, **RANGE})
    answer = spelling.send(spelling.api, ("POST", "/v1/search", body), spelling.key)
    assert OWN_WORD in answer.text
    loaded = ("GET", f"/v1/namespaces/{to_identifier(OWN)}/tables/{STREAM}", None)
    assert spelling.send(spelling.catalog, loaded, spelling.key).status_code == 200
