"""Which format a line of text has, told from the line alone."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo

from ingest.decode.event_time import parse_instant
from ingest.decode.formats.access_log import ACCESS_LOG
from ingest.decode.formats.syslog import ISO_LINE, RFC_3164, RFC_5424
from ingest.decode.formats.text_line import LineFormat, Values

LINE_FORMATS: Sequence[LineFormat] = (RFC_5424, RFC_3164, ISO_LINE, ACCESS_LOG)
# By its first character a line can be of few formats only; most plain lines are done after one glance.
_OTHERS = (ACCESS_LOG,)
_BY_FIRST: Mapping[str, tuple[LineFormat, ...]] = {
    "<": (RFC_5424, RFC_3164, ISO_LINE),
    **dict.fromkeys("0123456789", (ACCESS_LOG, ISO_LINE)),
    **dict.fromkeys("JFMASOND", (RFC_3164, ACCESS_LOG)),
}


def take_apart(line: str, kafka_us: int, local: tzinfo) -> tuple[LineFormat, Values] | None:
    """The format of a line and its values, the date not checked; None for a plain line."""
    for known in _BY_FIRST.get(line[:1], _OTHERS):
        if (values := known.read(line, kafka_us, local)) is not None:
            return known, values
    return None


def recognise(line: str, kafka_us: int, local: tzinfo) -> tuple[LineFormat, Values] | None:
    """The format of a line and its values; None for a plain line, which is also one with a date that no
    calendar has."""
    found = take_apart(line, kafka_us, local)
    if found is None or ((timestamp := found[1][0]) is not None and parse_instant(timestamp) is None):
        return None
    return found
