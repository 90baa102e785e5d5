"""Searches kept under a name, by key."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from query.access.access import Caller
from query.api.services import CallerOf, ServicesOf
from query.api.turns import run
from query.model.cancellation import Run
from query.tables.saved_searches import Owner

router = APIRouter(prefix="/v1/saved-searches", tags=["saved searches"])
Name = Annotated[str, Path(min_length=1, max_length=100)]
PARAMETERS_MAX = 20


class SavedSearch(BaseModel):
    """A search as the address of the search page holds it."""

    model_config = ConfigDict(extra="forbid")

    address: Annotated[
        dict[Annotated[str, Field(max_length=40)], Annotated[str, Field(max_length=10_000)]],
        Field(
            max_length=PARAMETERS_MAX,
            description="parameters of the search page: tenant, stream, q, from, to, columns, pin",
        ),
    ]


class SavedSearchesAnswer(BaseModel):
    searches: dict[str, SavedSearch]


@router.get("")
async def list_saved_searches(
    request: Request, services: ServicesOf, caller: CallerOf
) -> SavedSearchesAnswer:
    """The searches kept with this key, or by this person, by name."""

    def ask(_: Run) -> SavedSearchesAnswer:
        return SavedSearchesAnswer(
            searches={
                name: SavedSearch(address=dict(address))
                for name, address in services.saved.of(_owner(caller)).items()
            }
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


@router.put("/{name:path}", status_code=204)
async def keep_search(
    request: Request, name: Name, body: SavedSearch, services: ServicesOf, caller: CallerOf
) -> None:
    """Keeps a search under a name, in place of the one that had it."""
    await run(
        request,
        lambda _: services.saved.keep(_owner(caller), name, body.address),
        timeout_s=services.settings.search.timeout_s,
    )


@router.delete("/{name:path}", status_code=204)
async def drop_search(request: Request, name: Name, services: ServicesOf, caller: CallerOf) -> None:
    """Forgets a search."""
    await run(
        request,
        lambda _: services.saved.drop(_owner(caller), name),
        timeout_s=services.settings.search.timeout_s,
    )


def _owner(caller: Caller) -> Owner:
    return Owner(caller.who.key_id, caller.key)
