"""Access logs of Apache and nginx: the common and the combined log format, and nginx's `main`, which appends who a proxy came for.

    %h %l %u [%t] "%r" %>s %b ["%{Referer}i" "%{User-agent}i" ["$http_x_forwarded_for"]]

The message is the request line, so that one that is no HTTP is kept too; `-` is NULL; escapes stay as they are.
"""

import re
from datetime import tzinfo

from ingest.event_time import clf_to_iso
from ingest.formats.text_line import LineFields, LineFormat

_QUOTED = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
_LINE = re.compile(
    rf'([^\s"\[\]]+) ([^\s"\[\]]+) ([^\s"\[\]]+) \[([^\]]{{26}})\] {_QUOTED} (\d{{3}}) (\d+|-)(?: {_QUOTED} {_QUOTED}(?: {_QUOTED})?)?', re.ASCII
)
_REQUEST = re.compile(r"([A-Z][A-Z_-]{1,30}) (\S+) (HTTP/\d(?:\.\d)?)", re.ASCII)
_match = _LINE.fullmatch
_request = _REQUEST.fullmatch
_NO_REQUEST = (None, None, None)


def _read(line: str, kafka_us: int, local: tzinfo) -> LineFields | None:  # noqa: ARG001 - every reader gets them
    match = _match(line)
    if match is None:
        return None
    client, ident, user, stamp, request, status, size, referer, agent, forwarded = match.groups()
    if (timestamp := clf_to_iso(stamp)) is None:
        return None
    parts = found.groups() if (found := _request(request)) else _NO_REQUEST
    return LineFields(
        (
            timestamp,
            request,
            client,
            None if ident == "-" else ident,
            None if user == "-" else user,
            *parts,
            status,
            None if size == "-" else size,
            None if referer == "-" else referer,
            None if agent == "-" else agent,
            None if forwarded == "-" else forwarded,
        )
    )


ACCESS_LOG = LineFormat(
    "access log",
    ("timestamp", "message", "client_ip", "ident", "user", "method", "path", "protocol", "status", "size", "referer", "user_agent", "forwarded_for"),
    _read,
)
