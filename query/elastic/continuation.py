"""Points in time and scrolls as texts that say all there is to know: nothing is kept for them, and what they
name is checked with the asker's key each time."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from query.elastic.elastic_error import ElasticError
from query.model.point_in_time import PointInTime, parse_point_in_time

TEXT_MAX = 1_000_000
_BYTES_MAX = 4_000_000
INDICES_MAX = 100


@dataclass(frozen=True, slots=True)
class Scroll:
    """A search that goes on: its body, the point in time of each index, the place where the page before
    ended, and how many rows match."""

    body: Mapping[str, Any]
    pins: Mapping[str, str]
    after: list[Any] | None
    total: Mapping[str, Any] | None


def pit_text(pins: Mapping[str, PointInTime]) -> str:
    """The id of a point in time: of each index, what its table had committed."""
    return _packed({name: pin.to_text() for name, pin in pins.items()})


def read_pit(text: str) -> dict[str, PointInTime]:
    """The point in time behind an id. Raises ElasticError, BadRequestError."""
    return pins_of(_unpacked(text, "pit.id"))


def pins_of(texts: Any) -> dict[str, PointInTime]:
    """Points in time by index. Raises ElasticError, BadRequestError."""
    if not isinstance(texts, dict) or len(texts) > INDICES_MAX:
        raise _damaged("pit.id")
    if not all(isinstance(text, str) for text in texts.values()):
        raise _damaged("pit.id")
    return {name: parse_point_in_time(text) for name, text in texts.items()}


def scroll_text(scroll: Scroll) -> str:
    """The id of a scroll's next page."""
    return _packed({"b": scroll.body, "p": scroll.pins, "a": scroll.after, "t": scroll.total})


def read_scroll(text: str) -> Scroll:
    """The page behind an id. Raises ElasticError."""
    match _unpacked(text, "scroll_id"):
        case {"b": dict(body), "p": dict(pins), "a": (list() | None) as after, "t": (dict() | None) as total}:
            return Scroll(body, pins, after, total)
    raise _damaged("scroll_id")


def _packed(document: Any) -> str:
    return base64.urlsafe_b64encode(zlib.compress(orjson.dumps(document), 9)).decode().rstrip("=")


def _unpacked(text: str, what: str) -> Any:
    if len(text) > TEXT_MAX:
        raise _damaged(what)
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        reader = zlib.decompressobj()
        raw = reader.decompress(packed, _BYTES_MAX)
        if reader.unconsumed_tail:
            raise _damaged(what)
        return orjson.loads(raw)
    except (ValueError, zlib.error):
        raise _damaged(what) from None


def _damaged(what: str) -> ElasticError:
    return ElasticError(f"[{what}] is damaged; take it from the answer before, or begin anew")
