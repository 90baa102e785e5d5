"""Boards of a tenant: listed, shown, kept, deleted. What stands on one is asked for by whoever looks at it,
with their own key."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from lake.errors import ConflictError
from lake.metrics import QUERY_LIMITED
from lake.tenant import TenantId
from query.access.access import Caller
from query.api.services import CallerOf, Services, ServicesOf
from query.api.turns import run
from query.model.cancellation import Run
from query.model.instant import parse_instant, rfc3339
from query.model.problem import refuse
from query.model.table_view import table_id
from query.tables.board import NAME_PATTERN, Board, board_of
from query.tables.board_store import StoredBoard, board_named

router = APIRouter(prefix="/v1/boards", tags=["boards"])
Tenant = Annotated[str, Query(max_length=400)]
Name = Annotated[str, Path(pattern=NAME_PATTERN, description="letters, digits, `.`, `_` and `-`")]


class BoardLine(BaseModel):
    """A board in the list."""

    name: str
    title: str
    tiles: int
    by: Annotated[str, Field(description="the key or person that wrote it")]
    at: str
    version: int


class BoardsAnswer(BaseModel):
    boards: list[BoardLine]
    boards_max: Annotated[int, Field(description="that the tenant may have")]


class BoardAnswer(BaseModel):
    """A board; `board` is what is kept in files."""

    name: str
    board: dict[str, Any]
    by: str
    at: str
    version: int


class BoardBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    board: Annotated[
        dict[str, Any],
        Field(
            description="as a file has it",
            examples=[
                {
                    "title": "Checkout",
                    "from": "now-24h",
                    "to": "now",
                    "refresh_s": 60,
                    "tiles": [
                        {
                            "title": "Errors by host",
                            "query": "severity:error | stats count() by host, bucket(10m)",
                            "shown": "lines",
                            "size": "large",
                        }
                    ],
                }
            ],
        ),
    ]
    version: Annotated[
        int | None,
        Field(
            ge=0,
            description="the one that was changed, 0 for a new board: another one is refused (409); left "
            "out: whichever there is",
        ),
    ] = None


class BoardKept(BaseModel):
    version: int
    outcome: Annotated[str, Field(description="made, changed or unchanged")]


@router.get("")
async def list_boards(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: Tenant
) -> BoardsAnswer:
    """A tenant's boards by name."""
    whose = table_id(tenant, "logs").tenant

    def ask(_: Run) -> BoardsAnswer:
        services.access.check_tenant(caller, whose)
        return BoardsAnswer(
            boards=[
                BoardLine(
                    name=each.name,
                    title=each.board.title,
                    tiles=len(each.board.tiles),
                    by=each.by,
                    at=each.at,
                    version=each.version,
                )
                for each in _known(services, caller, whose)
            ],
            boards_max=services.settings.boards.per_tenant,
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.get("/{name}")
async def show_board(
    request: Request, name: Name, services: ServicesOf, caller: CallerOf, tenant: Tenant
) -> BoardAnswer:
    """One board with its tiles."""
    whose = table_id(tenant, "logs").tenant

    def ask(_: Run) -> BoardAnswer:
        services.access.check_tenant(caller, whose)
        found = board_named(_known(services, caller, whose), name, whose)
        return BoardAnswer(
            name=found.name, board=found.board.to_json(), by=found.by, at=found.at, version=found.version
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.put("/{name}")
async def keep_board(
    request: Request, name: Name, body: BoardBody, services: ServicesOf, caller: CallerOf
) -> BoardKept:
    """Keeps a board under a name, in place of the one that had it. Needs a key that may write."""
    whose, board, now = table_id(body.tenant, "logs").tenant, board_of(body.board), services.clock.now()
    if parse_instant(board.to, now, what="to") <= parse_instant(board.from_, now, what="from"):
        raise refuse("the board's time range is empty: its end must lie after its start")

    def ask(_: Run) -> BoardKept:
        services.access.check_writer(caller, whose)
        _check_known(services, caller, whose, board)
        wanted = StoredBoard(whose, name, board, caller.who.key_id, rfc3339(now))
        return _keep(services, caller, wanted, body.version)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.delete("/{name}", status_code=204)
async def delete_board(
    request: Request, name: Name, services: ServicesOf, caller: CallerOf, tenant: Tenant
) -> None:
    """Deletes a board. Needs a key that may write."""
    whose = table_id(tenant, "logs").tenant

    def ask(_: Run) -> None:
        services.access.check_writer(caller, whose)
        services.boards.drop(board_named(_known(services, caller, whose), name, whose))

    await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


def _keep(services: Services, caller: Caller, wanted: StoredBoard, changed: int | None) -> BoardKept:
    """Writes a board over the version that was changed, or whichever there is. Raises ConflictError."""
    known = {each.name: each for each in services.boards.of(wanted.tenant)}
    former = known.get(wanted.name)
    version = 0 if former is None else former.version
    if former is not None:
        _check_known(services, caller, wanted.tenant, former.board)
    if changed not in (None, version):
        raise ConflictError(f"somebody else has changed the board {wanted.name!r} meanwhile; load it again")
    if former is not None and former.board == wanted.board:
        return BoardKept(version=version, outcome="unchanged")
    if former is None:
        return BoardKept(version=_make(services, wanted), outcome="made")
    return BoardKept(version=services.boards.keep(replace(wanted, version=version)), outcome="changed")


def _make(services: Services, wanted: StoredBoard) -> int:
    """Keeps a board that there was not; its version. Counted while nobody else makes one."""
    most = services.settings.boards.per_tenant
    with services.boards.making() as lease:
        number = sum(1 for _ in services.boards.of(wanted.tenant))
        if number >= most:
            QUERY_LIMITED.labels("boards").inc()
            raise refuse(
                f"tenant {wanted.tenant.name!r} has {number:,} boards, and boards.per_tenant allows "
                f"{most:,}; delete one first"
            )
        return services.boards.keep(wanted, lease)


def _known(services: Services, caller: Caller, whose: TenantId) -> Iterator[StoredBoard]:
    """The boards that a caller may see."""
    return (each for each in services.boards.of(whose) if _knows(caller, each.board))


def _knows(caller: Caller, board: Board) -> bool:
    """Whether a caller reaches every stream of a board: what is searched for may say what is in it. A
    statement may name any stream."""
    if caller.who.streams is None:
        return True
    streams = [tile.searched_stream for tile in board.tiles]
    return all(stream is not None and caller.who.knows(stream) for stream in streams)


def _check_known(services: Services, caller: Caller, whose: TenantId, board: Board) -> None:
    """Raises ForbiddenError, NotFoundError where a caller does not reach a stream of a board."""
    if _knows(caller, board):
        return
    for tile in board.tiles:
        if tile.searched_stream is None:
            services.access.check_whole(caller, whose)
        else:
            services.access.check_stream(caller, table_id(whose.name, tile.searched_stream))
