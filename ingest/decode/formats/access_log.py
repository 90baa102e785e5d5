"""Access logs of Apache and nginx: the common and the combined log format, and nginx's `main`, which appends
who a proxy came for.

    %h %l %u [%t] "%r" %>s %b ["%{Referer}i" "%{User-agent}i" ["$http_x_forwarded_for"]]

The message is the request line, so that one that is no HTTP is kept too; `-` is NULL; escapes stay as they
are.
"""

import re
from datetime import tzinfo

from ingest.decode.event_time import clf_to_iso
from ingest.decode.formats.text_line import LineFormat, Values

_WORD = r'(?:-|([^\s"\[\]]+))'
_QUOTED = r'"(?:-|([^"\\]*(?:\\.[^"\\]*)*))"'
_LINE = re.compile(
    rf'([^\s"\[\]]+) {_WORD} {_WORD} \[([^\]]{{26}})\] "([^"\\]*(?:\\.[^"\\]*)*)" (\d\d\d) (?:-|(\d+))(?: '
    rf"{_QUOTED} {_QUOTED}(?: {_QUOTED})?)?",
    re.ASCII,
)
_match = _LINE.fullmatch


def _read(line: str, kafka_us: int, local: tzinfo) -> Values | None:  # noqa: ARG001 - every reader gets them
    match = _match(line)
    if match is None:
        return None
    client, ident, user, stamp, request, status, size, referer, agent, forwarded = match.groups()
    if (timestamp := clf_to_iso(stamp)) is None:
        return None
    parts = request.split(" ")
    method, path, protocol = None, None, None
    if len(parts) == 3 and parts[0] and parts[1] and parts[2].startswith("HTTP/"):
        method, path, protocol = parts
    who_and_what = (timestamp, request, client, ident, user, method, path, protocol)
    return (*who_and_what, status, size, referer, agent, forwarded)


ACCESS_LOG = LineFormat(
    "access log",
    (
        "timestamp",
        "message",
        "client_ip",
        "ident",
        "user",
        "method",
        "path",
        "protocol",
        "status",
        "size",
        "referer",
        "user_agent",
        "forwarded_for",
    ),
    _read,
)
