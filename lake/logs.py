"""Firn's own logs: structlog events with fields, JSON lines on stderr unless a person is watching."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


def configure_logs(room: str, *, level: int = logging.INFO) -> None:
    """Sends every structlog event of this process to stderr with time (RFC 3339, UTC), level, room and
    event."""
    renderer: Any = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )

    def add_room(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("room", room)
        return event

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            add_room,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        # stderr may be another one by the next event: a test's or a redirection's has been closed
        cache_logger_on_first_use=False,
    )
