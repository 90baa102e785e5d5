"""Dead letters over HTTP: list, show, replay."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from ingest.dead_letters.dead_letter_replay import Destination
from ingest.dead_letters.dead_letters import (
    DeadLetterBox,
    LetterFilter,
    known_stream,
    known_tenant,
)
from ingest.decode.dead_letter import DeadLetter
from ingest.serve.answers import BusyError
from lake import metrics
from lake.errors import SettingsError

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])
LIMIT_MAX = 1_000
WAIT_S = 30.0
Name = Annotated[str | None, Query(max_length=400)]


class FilterBody(BaseModel):
    """Which dead letters; what is absent does not matter."""

    reason: Annotated[str | None, Field(max_length=100)] = None
    topic: Annotated[str | None, Field(max_length=400)] = None
    tenant: Annotated[str | None, Field(max_length=400)] = None
    since: datetime | None = None
    until: datetime | None = None

    def to_filter(self) -> LetterFilter:
        return LetterFilter(self.reason, self.topic, self.tenant, _utc(self.since), _utc(self.until))


class ReplayBody(BaseModel):
    """Letters by id, or by a filter; for every dead letter there is, `all` has to be said."""

    ids: Annotated[list[str], Field(max_length=10_000)] = []
    filter: FilterBody = FilterBody()
    all: bool = False
    to_tenant: Annotated[str | None, Field(max_length=400)] = None
    to_stream: Annotated[str | None, Field(max_length=400)] = None
    dry_run: bool = False
    look: Annotated[
        bool, Field(description="look whether they are rows of their tables already, and leave those alone")
    ] = True


def _utc(moment: datetime | None) -> datetime | None:
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@router.get("")
def list_letters(
    request: Request,
    reason: Name = None,
    topic: Name = None,
    tenant: Name = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 100,
    before: Annotated[str | None, Query(max_length=2_000, description="`next` of the page before")] = None,
) -> dict[str, Any]:
    """Letters, newest first; values are shortened. `next` None: there are no more."""
    wanted = LetterFilter(reason, topic, tenant, _utc(since), _utc(until))
    with _one_at_a_time(request):
        letters, left = request.app.state.serve.tools.dead_letters().newest(
            wanted, limit, _parse_cursor(before)
        )
    return {
        "dead_letters": [letter.to_json() for letter in letters],
        "next": None if left is None else ",".join(f"{p}:{at}" for p, at in left.items()),
    }


@contextmanager
def _one_at_a_time(request: Request) -> Iterator[None]:
    """The dead-letter topic is read by one at a time; who waits too long is told so, and holds no thread any
    more. Raises BusyError."""
    letters = request.app.state.serve.letters
    if not letters.acquire(timeout=WAIT_S):
        raise BusyError(
            f"somebody has been reading or replaying dead letters for {WAIT_S:.0f} s; ask again in a moment"
        )
    try:
        yield
    finally:
        letters.release()


def _parse_cursor(before: str | None) -> dict[int, int] | None:
    if not before:
        return None
    try:
        return {
            int(partition): int(at)
            for partition, _, at in (pair.partition(":") for pair in before.split(","))
        }
    except ValueError as error:
        raise SettingsError(
            "before is not what a page's `next` said; start the listing again without it"
        ) from error


@router.get("/{letter_id}")
def show_letter(request: Request, letter_id: str) -> dict[str, Any]:
    """One dead letter with everything it had: key, headers, value, as text and in base64."""
    with _one_at_a_time(request):
        letter: DeadLetter = request.app.state.serve.tools.dead_letters().one(letter_id)
    return letter.to_json_whole(request.app.state.serve.tools.letters_aside)


@router.get("/{letter_id}/value")
def letter_value(request: Request, letter_id: str) -> Response:
    """The bytes of the message, as they are."""
    with _one_at_a_time(request):
        letter: DeadLetter = request.app.state.serve.tools.dead_letters().one(letter_id)
    value = letter.read_value(request.app.state.serve.tools.letters_aside)
    return Response(
        value or b"", media_type="application/octet-stream", headers={"X-Content-Type-Options": "nosniff"}
    )


@router.post("/replay")
def replay_letters(request: Request, body: ReplayBody) -> dict[str, Any]:
    """Sends dead letters again, each once for each of its attempts, and none that is a row already; answers
    when all are acknowledged. `dry_run` only says what would happen."""
    tools, wanted = request.app.state.serve.tools, body.filter.to_filter()
    if not body.ids and wanted.is_all and not body.all:
        raise SettingsError("say which dead letters: ids, a filter, or all=true")
    destination = Destination(
        None if body.to_tenant is None else known_tenant(body.to_tenant),
        None if body.to_stream is None else known_stream(body.to_stream),
    )
    with _one_at_a_time(request):
        result = tools.replayer().replay(
            chosen(tools.dead_letters(), body.ids, wanted), destination, dry_run=body.dry_run, look=body.look
        )
    if not body.dry_run:
        metrics.LETTERS_REPLAYED.inc(result.sent.total())
    return {"dry_run": body.dry_run, **result.to_json()}


def chosen(box: DeadLetterBox, ids: list[str], wanted: LetterFilter) -> Iterator[DeadLetter]:
    """The dead letters of these ids, else those of the filter."""
    return (box.one(letter_id) for letter_id in ids) if ids else box.all(wanted)
