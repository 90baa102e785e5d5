"""Requests that nobody meant, with keys of one tenant and the names of another: from the OpenAPI documents
and from the matrix of routes."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from tests.security.support.route_matrix import ROUTES, Route

HUGE = 200_000
WRONG_TYPES: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**63,
    1e308,
    [],
    {},
    [[]],
    {"": {}},
    "",
    "\x00",
    "\ud800".encode("utf-8", "surrogatepass").hex(),
)
SENT_BY = "Authorization"


@dataclass(frozen=True)
class Shot:
    """One request, as `requests.Session.request` takes it."""

    service: str
    options: Mapping[str, Any]


class Hostile:
    """Makes them. `names`: what the attacker knows or guesses of the other tenant; `own`: its own names.
    Everything random comes from one seed. `document_key`: what services may ask for before they show their
    documents, which are no secret.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        keys: Sequence[str],
        names: Mapping[str, str],
        own: Mapping[str, str],
        chance: int,
        document_key: str,
    ) -> None:
        self._addresses, self._keys, self._names, self._own = addresses, keys, names, own
        self._random = random.Random(chance)
        self._operations = [
            (service, each) for service in addresses for each in _operations(addresses[service], document_key)
        ]
        documented = {service for service, _ in self._operations}
        assert documented >= {"catalog", "query", "ingest-serve", "ingest-node"}, documented
        self._plainly = False
        self.known = sorted({variant for name in names.values() for variant in spellings(name)})

    def shots(self, count: int) -> list[Shot]:
        """So many requests, half from each source."""
        made: list[Shot] = []
        while len(made) < count // 2:
            service, operation = self._random.choice(self._operations)
            made += self._from_document(service, operation, 4)
        made += [self._from_route(self._random.choice(ROUTES)) for _ in range(count - len(made))]
        self._random.shuffle(made)
        return made

    def plain(self) -> list[Shot]:
        """Every row of the matrix once with each name as it is, the other tenant's: what any one check that
        is missing lets through."""
        self._plainly = True
        try:
            return [self._from_route(route) for route in ROUTES]
        finally:
            self._plainly = False

    def _from_document(self, service: str, operation: Any, count: int) -> list[Shot]:
        """Sound and unsound requests of an operation, most of them with a name of the other tenant
        somewhere."""
        made: list[Shot] = []
        mode = self._random.choice(list(GenerationMode))

        @seed(self._random.getrandbits(32))
        @settings(
            max_examples=count,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def draw(case: Any) -> None:
            options = dict(case.as_transport_kwargs(base_url=self._addresses[service]))
            made.append(Shot(service, self._signed(self._spoilt(options))))

        try:
            draw()
        except Unsatisfiable:
            return made
        return made

    def _from_route(self, route: Route) -> Shot:
        """A row of the matrix, its names those of the other tenant in some spelling, here and there one of
        its own, or something else altogether."""
        path = "/".join(self._part(part) for part in route.path.split("/"))
        options: dict[str, Any] = {
            "method": "GET" if route.method == "WEBSOCKET" else route.method,
            "url": f"{self._addresses[route.service].rstrip('/')}{path}",
            "headers": {},
        }
        options |= {
            name: self._filled(value)
            for name, value in (("params", route.query), ("json", route.body), ("data", route.form))
            if value is not None
        }
        for part in ("params", "data"):
            if isinstance(options.get(part), bool | int | float):
                options[part] = str(options[part])  # a query or a form can be any text, but only text
        return Shot(route.service, self._signed(options))

    def _part(self, part: str) -> str:
        if not part.startswith("{"):
            return part
        name = part[1:-1].split(":")[0]
        spelt = self._word(name)
        return spelt if self._random.random() < 0.3 else quote(spelt, safe="")

    def _word(self, name: str) -> str:
        """What a parameter says: most often a name of the other tenant."""
        if self._plainly:
            return self._names.get(name, "x")
        roll = self._random.random()
        if roll < 0.15:
            return self._own.get(name, "x")
        if roll < 0.2:
            return "x" * self._random.choice((300, 5_000))
        return (
            self._random.choice(self.known)
            if roll < 0.55
            else self._names.get(name, self._random.choice(self.known))
        )

    def _filled(self, template: Any) -> Any:
        """A template with words in its places; here and there a value of a type that does not belong
        there."""
        if not self._plainly and self._random.random() < 0.02:
            return self._random.choice(WRONG_TYPES)
        if isinstance(template, str):
            for name in {*self._names, *self._own}:
                if f"{{{name}}}" in template:
                    template = template.replace(f"{{{name}}}", self._word(name))
            return "y" * HUGE if self._random.random() < 0.002 else template
        if isinstance(template, list):
            return [self._filled(each) for each in template]
        return (
            {key: self._filled(value) for key, value in template.items()}
            if isinstance(template, Mapping)
            else template
        )

    def _spoilt(self, options: dict[str, Any]) -> dict[str, Any]:
        """A generated request with names of the other tenant in some of its texts."""
        for part in ("params", "json", "data"):
            if part in options:
                options[part] = self._with_names(options[part])
        address = urlsplit(options["url"])
        path = "/".join(
            quote(self._word("tenant"), safe="") if self._random.random() < 0.3 and at > 1 else part
            for at, part in enumerate(address.path.split("/"))
        )
        return {**options, "url": address._replace(path=path).geturl()}

    def _with_names(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._random.choice(self.known) if self._random.random() < 0.4 else value
        if isinstance(value, list):
            return [self._with_names(each) for each in value]
        return (
            {key: self._with_names(each) for key, each in value.items()}
            if isinstance(value, Mapping)
            else value
        )

    def _signed(self, options: dict[str, Any]) -> dict[str, Any]:
        return {
            **options,
            "headers": {
                **(options.get("headers") or {}),
                SENT_BY: f"Bearer {self._random.choice(self._keys)}",
            },
        }


def spellings(name: str) -> Iterator[str]:
    """A name as a server might take it for the same, or for a way to it."""
    yield from (
        name,
        name.upper(),
        name.title(),
        f" {name}",
        f"{name} ",
        f"{name}.",
        f"{name}/",
        f"/{name}",
        f"../{name}",
        f"./{name}",
        f"x/../{name}",
    )
    yield from (
        f'"{name}"',
        f"`{name}`",
        f"{name}\x00",
        f"\x00{name}",
        f"x\x1f{name}",
        f"{name}\x1fx",
        f"{name};x",
        f"{name}' OR '1'='1",
        f"{name}--",
    )
    yield from (
        quote(name),
        "".join(f"%{byte:02x}" for byte in name.encode()),
        quote("".join(f"%{byte:02x}" for byte in name.encode())),
        f"%2e%2e%2f{name}",
    )
    yield "".join(
        chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in name
    )  # full width


def _operations(address: str, key: str) -> list[Any]:
    """The operations of a service's document; none where it has none."""
    try:
        document: Any = schemathesis.openapi.from_url(
            f"{address.rstrip('/')}/openapi.json", headers={SENT_BY: f"Bearer {key}"}
        )
    except Exception:  # noqa: BLE001 - the front end and the metrics have no document, and answer with something else
        return []
    return [found.ok() for found in document.get_all_operations() if isinstance(found, Ok)]
