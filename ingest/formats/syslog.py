"""Lines of syslog: RFC 5424; RFC 3164 with or without its priority; and the file format of today's daemons, which is RFC 3164 with an ISO time.

The last is RSYSLOG_FileFormat, RSYSLOG_ForwardFormat, and `$ISODATE $HOST $MSGHDR$MSG` of syslog-ng. What RFC 3164 leaves open is told narrowly: without a
priority a line needs a tag (`sshd[123]:`, `kernel:`, with an ISO time also `sshd[123]`), or it stays one message.
"""

import re
from datetime import tzinfo
from functools import lru_cache

from ingest.event_time import syslog_to_iso
from ingest.formats.text_line import Extras, LineFields, LineFormat

# As rsyslog and syslog-ng spell them (RFC 5424, tables 1 and 2).
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp", "audit", "alert", "clock"),
    *(f"local{n}" for n in range(8)),
)
_NAMES = ("timestamp", "severity", "message", "facility", "host", "app_name", "proc_id", "msg_id")
_PRIORITIES = {str(n): (SEVERITIES[n % 8], FACILITIES[n // 8]) for n in range(len(FACILITIES) * 8)}
_UNKNOWN = (None, None)
_HOST = r'(?!(?i:trace|debug|info|notice|warn|warning|err|error|crit|critical|alert|fatal|panic|emerg|severe) )[^\s:"<>\[\](){}=,;]{1,255}|[0-9A-Fa-f:.]{2,45}'
_TAG = r'([^\s:"<>\[\]{}=,;]{1,128})(?:\[([^\s\[\]]{1,128})\])?'
_REPEATED = r"(?:last )?message repeated \d+ times(?::.*)?"
_ISO = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d))"
_SD_NAME = r'[!#-<>-Z\\^-~]{1,32}'
_SD_VALUE = r'"[^"\\\]]*(?:\\.[^"\\\]]*)*"'
_RFC_5424 = re.compile(
    rf"<(\d{{1,3}})>1 (-|{_ISO[1:-1]}) (\S{{1,255}}) (\S{{1,48}}) (\S{{1,128}}) (\S{{1,32}}) "
    rf"(-|(?:\[{_SD_NAME}(?: {_SD_NAME}={_SD_VALUE})*\])+)(?: (?:\ufeff)?(.*))?",
    re.DOTALL | re.ASCII,
)
_RFC_3164 = re.compile(
    rf"(?:<(\d{{1,3}})>)?([A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d) ({_HOST}) (?:{_TAG}:(?: (.*))?|({_REPEATED}))", re.DOTALL | re.ASCII
)
_RFC_3164_UNTAGGED = re.compile(rf"<(\d{{1,3}})>([A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d) ({_HOST}) (.*)", re.DOTALL | re.ASCII)
_ISO_LINE = re.compile(
    rf"(?:<(\d{{1,3}})>)?{_ISO} ({_HOST}) (?:{_TAG}:(?: (.*))?|([^\s:\"<>\[\]{{}}=,;]{{1,128}})\[([^\s\[\]]{{1,128}})\](?: (.*))?|({_REPEATED}))",
    re.DOTALL | re.ASCII,
)
_SD_ELEMENT = re.compile(rf"\[({_SD_NAME})((?: {_SD_NAME}={_SD_VALUE})*)\]", re.DOTALL | re.ASCII)
_SD_PARAM = re.compile(rf" ({_SD_NAME})=({_SD_VALUE})", re.DOTALL | re.ASCII)
_unescape = re.compile(r'\\(["\\\]])').sub


def _priority(text: str | None) -> tuple[str | None, str | None] | None:
    """Severity and facility of a priority value; None where it is none."""
    return _UNKNOWN if text is None else _PRIORITIES.get(text)


def _read_5424(line: str, kafka_us: int, local: tzinfo) -> LineFields | None:  # noqa: ARG001 - every reader gets them
    match = _RFC_5424.fullmatch(line)
    if match is None:
        return None
    priority, timestamp, host, app_name, proc_id, msg_id, data, message = match.groups()
    if (known := _priority(priority)) is None:
        return None
    return LineFields(
        (
            None if timestamp == "-" else timestamp,
            known[0],
            message,
            known[1],
            None if host == "-" else host,
            None if app_name == "-" else app_name,
            None if proc_id == "-" else proc_id,
            None if msg_id == "-" else msg_id,
        ),
        () if data == "-" else structured_data(data),
    )


@lru_cache(maxsize=8_192)
def structured_data(text: str) -> Extras:
    """The parameters of structured data as (element id, name, value); an element without any as (element id, None, "")."""
    found: list[tuple[str, str | None, str]] = []
    for element, params in _SD_ELEMENT.findall(text):
        found += [(element, name, _unescape(r"\1", value[1:-1])) for name, value in _SD_PARAM.findall(params)] or [(element, None, "")]
    return tuple(found)


def _read_3164(line: str, kafka_us: int, local: tzinfo) -> LineFields | None:
    match = _RFC_3164.fullmatch(line)
    if match is not None:
        priority, stamp, host, tag, pid, message, repeated = match.groups()
    elif match := _RFC_3164_UNTAGGED.fullmatch(line):
        (priority, stamp, host, message), tag, pid, repeated = match.groups(), None, None, None
    else:
        return None
    known, timestamp = _priority(priority), syslog_to_iso(stamp, kafka_us, local)
    if known is None or timestamp is None:
        return None
    return LineFields((timestamp, known[0], repeated or message or "", known[1], host, tag, pid, None))


def _read_iso(line: str, kafka_us: int, local: tzinfo) -> LineFields | None:  # noqa: ARG001
    match = _ISO_LINE.fullmatch(line)
    if match is None:
        return None
    priority, timestamp, host, tag, pid, message, bare_tag, bare_pid, bare_message, repeated = match.groups()
    if (known := _priority(priority)) is None:
        return None
    return LineFields((timestamp, known[0], repeated or message or bare_message or "", known[1], host, tag or bare_tag, pid or bare_pid, None))


RFC_5424 = LineFormat("syslog, RFC 5424", _NAMES, _read_5424)
RFC_3164 = LineFormat("syslog, RFC 3164", _NAMES, _read_3164)
ISO_LINE = LineFormat("syslog with an ISO time", _NAMES, _read_iso)
