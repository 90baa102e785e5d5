"""A board: searches, with pipes or without, and statements whose results stand side by side as tiles, over
one range of time. Written as JSON, by people and by the pages."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import ErrorDetails

from query.language.search_language import CHARACTERS_MAX
from query.model.problem import refuse

TILES_MAX = 40
BYTES_MAX = 64 * 1024
FAULTS_TOLD, PLACE_CHARACTERS = 20, 60
REFRESH_S_MIN, REFRESH_S_MAX = 10, 86_400
NAME_PATTERN = r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$"

Title = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Time = Annotated[str, StringConstraints(min_length=1, max_length=60)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tile(_Strict):
    """A search of a stream (`query`, which may have pipes and may be empty), or a statement (`sql`)."""

    title: Title
    query: Annotated[str | None, Field(max_length=CHARACTERS_MAX)] = None
    stream: Annotated[str | None, Field(max_length=400, description="of a search; `logs` if left out")] = None
    sql: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=20_000,
            description="{from} and {to} in it are the board's range",
        ),
    ] = None
    shown: Annotated[
        Literal["table", "bars", "lines", "figure"],
        Field(description="of a search without pipes bars are its histogram, and the figure is its number"),
    ] = "table"
    size: Annotated[
        Literal["small", "medium", "large"], Field(description="a third of the width, half of it, all of it")
    ] = "medium"

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Self:
        if (self.query is None) == (self.sql is None):
            raise ValueError("a tile has either `query` or `sql`")
        if self.sql is not None and self.stream is not None:
            raise ValueError("a statement names its streams itself; leave `stream` out")
        return self

    @property
    def searched_stream(self) -> str | None:
        """The stream of a search; None of a statement, which may name any."""
        return None if self.sql is not None else self.stream or "logs"


class Board(_Strict):
    """Tiles in their order, and what they share."""

    title: Title
    from_: Annotated[Time, Field(alias="from", description="as a search has it")] = "now-24h"
    to: Time = "now"
    refresh_s: Annotated[
        int | None,
        Field(
            ge=REFRESH_S_MIN,
            le=REFRESH_S_MAX,
            description="seconds after which the tiles are asked for anew; null: when somebody says so",
        ),
    ] = None
    tiles: Annotated[tuple[Tile, ...], Field(max_length=TILES_MAX)] = ()

    def to_json(self) -> dict[str, Any]:
        """As it is kept and written into files: what nobody said is left out of tiles."""
        return {
            "title": self.title,
            "from": self.from_,
            "to": self.to,
            "refresh_s": self.refresh_s,
            "tiles": [tile.model_dump(exclude_none=True) for tile in self.tiles],
        }


def board_of(given: Mapping[str, Any]) -> Board:
    """A board as somebody sends it. Raises BadRequestError with every fault, each with its place."""
    try:
        return Board.model_validate(given)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        raise refuse("\n".join(map(_fault, faults[:FAULTS_TOLD]))) from error


def _fault(fault: ErrorDetails) -> str:
    place = ".".join(str(part)[:PLACE_CHARACTERS] for part in fault["loc"])
    return f"{place or 'board'}: {fault['msg'].removeprefix('Value error, ')}"
