"""Lines of syslog: RFC 5424; RFC 3164 with or without its priority; and the file format of today's daemons,
which is RFC 3164 with an ISO time.

The last is RSYSLOG_FileFormat, RSYSLOG_ForwardFormat, and `$ISODATE $HOST $MSGHDR$MSG` of syslog-ng. What RFC
3164 leaves open is told narrowly: without a priority a line needs a tag (`sshd[123]:`, `kernel:`, with an ISO
time also `sshd[123]`), and a level is no host; other lines stay one message.
"""

import re
from datetime import tzinfo

from ingest.decode.event_time import syslog_to_iso
from ingest.decode.formats.text_line import Extras, LineFormat, Values
from lake.short_texts import kept_of_short_texts

# As rsyslog and syslog-ng spell them (RFC 5424, tables 1 and 2).
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
FACILITIES = (
    *(
        "kern",
        "user",
        "mail",
        "daemon",
        "auth",
        "syslog",
        "lpr",
        "news",
        "uucp",
        "cron",
        "authpriv",
        "ftp",
        "ntp",
        "audit",
        "alert",
        "clock",
    ),
    *(f"local{n}" for n in range(8)),
)
_NAMES = ("timestamp", "severity", "message", "facility", "host", "app_name", "proc_id")
_PRIORITIES = {str(n): (SEVERITIES[n % 8], FACILITIES[n // 8]) for n in range(len(FACILITIES) * 8)}
_UNKNOWN = (None, None)
_LEVELS = frozenset(
    (
        "trace",
        "debug",
        "info",
        "notice",
        "warn",
        "warning",
        "err",
        "error",
        "crit",
        "critical",
        "alert",
        "fatal",
        "panic",
        "emerg",
        "severe",
    )
)
_HOST = r'([^\s:"<>\[\](){}=,;]{1,255}|[0-9A-Fa-f:.]{2,45})'
_TAG = r'([^\s:"<>\[\]{}=,;]{1,128})'
_PID = r"\[([^\s\[\]]{1,128})\]"
_REPEATED = r"(?:last )?message repeated \d+ times(?::.*)?"
_ISO = r"\d\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
_SD_NAME = r"[!#-<>-Z\\^-~]{1,32}"
_SD_VALUE = r'"[^"\\\]]*(?:\\.[^"\\\]]*)*"'
_FLAGS = re.DOTALL | re.ASCII
_rfc_5424 = re.compile(
    rf"<(\d{{1,3}})>1 (?:-|({_ISO})) (?:-|(\S{{1,255}})) (?:-|(\S{{1,48}})) (?:-|(\S{{1,128}})) "
    rf"(?:-|(\S{{1,32}})) "
    rf"(?:-|((?:\[{_SD_NAME}(?: {_SD_NAME}={_SD_VALUE})*\])+))(?: \ufeff?(.*))?",
    _FLAGS,
).fullmatch
_rfc_3164 = re.compile(
    rf"(?:<(\d{{1,3}})>)?([A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d) {_HOST} (?:{_TAG}(?:{_PID})?:(?: "
    rf"(.*))?|({_REPEATED}))",
    _FLAGS,
).fullmatch
_rfc_3164_untagged = re.compile(
    rf"<(\d{{1,3}})>([A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d) {_HOST} (.*)", _FLAGS
).fullmatch
_iso_line = re.compile(
    rf"(?:<(\d{{1,3}})>)?({_ISO}) {_HOST} (?:{_TAG}(?:(?:{_PID}):?|:)(?: (.*))?|({_REPEATED}))", _FLAGS
).fullmatch
_sd_element = re.compile(rf"\[({_SD_NAME})((?: {_SD_NAME}={_SD_VALUE})*)\]", _FLAGS).findall
_sd_param = re.compile(rf" ({_SD_NAME})=({_SD_VALUE})", _FLAGS).findall
_unescape = re.compile(r'\\(["\\\]])').sub


def _read_5424(line: str, kafka_us: int, local: tzinfo) -> Values | None:  # noqa: ARG001 - every reader gets them
    match = _rfc_5424(line)
    if match is None:
        return None
    priority, timestamp, host, app_name, proc_id, msg_id, data, message = match.groups()
    if (known := _PRIORITIES.get(priority)) is None:
        return None
    return (timestamp, known[0], message, known[1], host, app_name, proc_id, msg_id, data)


@kept_of_short_texts(8_192)
def structured_data(text: str) -> Extras:
    """The parameters of structured data (RFC 5424, 6.3) as (element id, name, value); an element without any
    as (element id, None, "")."""
    found: list[tuple[str, str | None, str]] = []
    for element, params in _sd_element(text):
        inside = [(element, name, _unescape(r"\1", value[1:-1])) for name, value in _sd_param(params)]
        found += inside or [(element, None, "")]
    return tuple(found)


def _read_3164(line: str, kafka_us: int, local: tzinfo) -> Values | None:
    match = _rfc_3164(line)
    if match is not None:
        priority, stamp, host, tag, pid, message, repeated = match.groups()
    elif match := _rfc_3164_untagged(line):
        (priority, stamp, host, message), tag, pid, repeated = match.groups(), None, None, None
    else:
        return None
    known = _UNKNOWN if priority is None else _PRIORITIES.get(priority)
    timestamp = syslog_to_iso(stamp, kafka_us, local)
    if known is None or timestamp is None or (priority is None and host.lower() in _LEVELS):
        return None
    return (timestamp, known[0], repeated or message or "", known[1], host, tag, pid)


def _read_iso(line: str, kafka_us: int, local: tzinfo) -> Values | None:  # noqa: ARG001
    match = _iso_line(line)
    if match is None:
        return None
    priority, timestamp, host, tag, pid, message, repeated = match.groups()
    known = _UNKNOWN if priority is None else _PRIORITIES.get(priority)
    if known is None or (priority is None and host.lower() in _LEVELS):
        return None
    return (timestamp, known[0], repeated or message or "", known[1], host, tag, pid)


RFC_5424 = LineFormat("syslog (RFC 5424)", (*_NAMES, "msg_id"), _read_5424, structured_data, begins="<")
# With a priority, else by the first letter of a month or by a digit.
RFC_3164 = LineFormat("syslog (RFC 3164)", _NAMES, _read_3164, begins="<JFMASOND")
ISO_LINE = LineFormat("syslog with an ISO time", _NAMES, _read_iso, begins="<0123456789")
