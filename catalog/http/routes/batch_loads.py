"""`POST /firn/v1/loads`: many tables in one answer, each as by itself."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from catalog.access.access import Principal
from catalog.access.verbs import Need
from catalog.http.routes.request_schemas import IDENTIFIER
from catalog.http.services import Services
from catalog.http.wire import RawRoute, describe, principal_of, read_object, services_of
from catalog.model.error_response import CatalogError, bad_request, no_such_table, unavailable
from catalog.model.identifier import Identifier, parse_identifier
from catalog.model.json_fields import objects, optional_integer
from catalog.store import tables
from catalog.store.tables import TABLE, Head
from lake.errors import FirnError

router = APIRouter(route_class=RawRoute, tags=["firn"])
Json = dict[str, Any]
LOADS_MAX = 1_000
# An answer ends with the table that makes it longer; so a client holds about as much at once, parsed.
ANSWER_BYTES_MAX = 4 * 1024 * 1024
# So many are read from the storage beside each other, where they are not in memory.
READ_TOGETHER = 16
BATCH: Json = {
    "type": "object",
    "required": ["identifiers"],
    "properties": {
        "identifiers": {"type": "array", "maxItems": LOADS_MAX, "items": IDENTIFIER},
        "deadline-ms": {"type": "integer", "minimum": 0},
    },
}


@router.post("/firn/v1/loads", **describe("Load many tables, each as by itself", body=BATCH, needs=Need.READ))
async def load_batch(request: Request) -> Response:
    """Results come in the order of the identifiers, each with `metadata-location` and `metadata`, or with an
    `error`.

    There may be fewer than identifiers, but for an empty list never none: an answer is of bounded size, and
    the rest is to be asked for again. `deadline-ms` counts from the arrival of the request; a table whose
    metadata the storage has not given by then gets an error.
    """
    body = await read_object(request)
    asked = objects(body, "identifiers")
    if len(asked) > LOADS_MAX:
        raise bad_request(f"a batch holds at most {LOADS_MAX} identifiers; send several")
    deadline_ms = optional_integer(body, "deadline-ms")
    services, by = services_of(request), principal_of(request)
    until_s = None if deadline_ms is None else services.clock.monotonic_s() + deadline_ms / 1_000
    identifiers = [_permitted(item, by) for item in asked]
    keys = [identifier.key for identifier in identifiers if isinstance(identifier, Identifier)]
    heads = await services.read(lambda connection: tables.find_many(connection, services.database, keys))
    results, size = list[bytes](), 0
    for first in range(0, len(asked), READ_TOGETHER):
        some = slice(first, first + READ_TOGETHER)
        for result in await _loaded(services, asked[some], identifiers[some], heads, until_s):
            results.append(result)
            size += len(result)
            if size >= ANSWER_BYTES_MAX:
                return _answer(results)
    return _answer(results)


def _answer(results: Sequence[bytes]) -> Response:
    return Response(b'{"results":[' + b",".join(results) + b"]}", media_type="application/json")


def _permitted(item: Json, by: Principal) -> Identifier | CatalogError:
    """The table that is asked for, or why the caller does not get it, whether it is there or not."""
    try:
        identifier = parse_identifier(item)
        by.require_table(Need.READ, identifier)
    except CatalogError as error:
        return error
    return identifier


async def _loaded(
    services: Services,
    asked: Sequence[Json],
    identifiers: Sequence[Identifier | CatalogError],
    heads: Mapping[str, Head],
    until_s: float | None,
) -> list[bytes]:
    """Results, read beside each other where they are not in memory."""
    found: list[Head | CatalogError] = [_found(identifier, heads) for identifier in identifiers]
    in_memory = [
        services.store.cached(each.metadata_location) if isinstance(each, Head) else None for each in found
    ]
    missing = [at for at, each in enumerate(found) if isinstance(each, Head) and in_memory[at] is None]
    reading = [_read(services, found[at], until_s) for at in missing]
    read = dict(zip(missing, await asyncio.gather(*reading), strict=True)) if reading else {}
    return [
        _result(item, each, read.get(at, in_memory[at]))
        for at, (item, each) in enumerate(zip(asked, found, strict=True))
    ]


def _found(identifier: Identifier | CatalogError, heads: Mapping[str, Head]) -> Head | CatalogError:
    if isinstance(identifier, CatalogError):
        return identifier
    head = heads.get(identifier.key)
    return head if head is not None and head.kind == TABLE else no_such_table(str(identifier))


async def _read(services: Services, head: Head | CatalogError, until_s: float | None) -> bytes | CatalogError:
    assert isinstance(head, Head)
    left_s = None if until_s is None else max(0.0, until_s - services.clock.monotonic_s())
    try:
        return await asyncio.wait_for(services.metadata(head.metadata_location), left_s)
    except TimeoutError:
        return unavailable(f"the storage did not give {head.metadata_location} in time; try again")
    except CatalogError as error:
        return error
    except FirnError as error:
        return unavailable(f"{error}; try again")


def _result(asked: Json, found: Head | CatalogError, data: bytes | CatalogError | None) -> bytes:
    error = found if isinstance(found, CatalogError) else data
    if isinstance(error, CatalogError):
        return orjson.dumps({"identifier": asked, "error": error.model()})
    assert isinstance(found, Head)
    assert isinstance(data, bytes)
    told = orjson.dumps({"identifier": asked, "metadata-location": found.metadata_location})
    return told[:-1] + b',"metadata":' + data + b"}"
