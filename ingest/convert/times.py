"""Texts to moments by columns: what `event_time` reads one by one, the usual spellings many at a time."""

from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.event_time import parse_instant

UTC_US = pa.timestamp("us", "UTC")
_NAIVE = pa.timestamp("s")
_SECOND_NS = 1_000_000_000
# Arrow reads times of the year 0, which the calendar of `event_time` does not have.
_YEAR_1_US = -62_135_596_800_000_000
# By the size of an epoch number its unit in nanoseconds, as `event_time` tells them apart.
_UNITS_NS = ((10**11, _SECOND_NS), (10**14, 1_000_000), (10**17, 1_000))
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ISO = (
    r"\A(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:[.,](?P<fraction>[0-9]{1,9}))? ?(?P<zone>Z|z|[+-][0-9]{2}:[0-9]{2})?\z"
)
_INTEGER = r"\A-?[0-9]{1,18}\z"
_SECONDS = r"\A[0-8]?[0-9]{1,9}\.[0-9]{1,9}\z"  # as nanoseconds no more than 64 bits
_CLF = r"\A[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}\z"


class Moments(NamedTuple):
    """By row: microseconds since 1970 (of any value where the text is no time), whether it is one, and
    whether microseconds say all that the text says."""

    us: Any  # int64
    are_times: Any  # bool
    are_exact: Any  # bool


def read_moments(texts: pa.Array, near_us: Any, local: tzinfo = UTC) -> Moments:
    """Reads a string array; NULL is no time. `near_us`: by row the Kafka timestamp, by which a time without a
    year gets one (None: then such a time is none); `local`: the zone of times that name none."""
    if (moments := _rfc_3339(texts)) is not None:
        return moments
    rows = len(texts)
    found = Moments(np.zeros(rows, np.int64), np.zeros(rows, bool), np.ones(rows, bool))
    left = texts.is_valid().to_numpy(zero_copy_only=False)
    for pattern, read in _likeliest_first(texts):
        if not left.any():
            return found
        alike = (
            pc.match_substring_regex(texts, pattern).fill_null(False).to_numpy(zero_copy_only=False) & left
        )
        if alike.any() and (part := read(texts.filter(pa.array(alike)), local)) is not None:
            us, are_exact = part
            found.us[alike], found.are_times[alike], found.are_exact[alike] = us, True, are_exact
            left &= ~alike
    for row, text in zip(
        np.flatnonzero(left).tolist(), texts.filter(pa.array(left)).to_pylist(), strict=True
    ):
        instant = parse_instant(text, None if near_us is None else int(near_us[row]), local)
        if instant is not None:
            found.us[row], found.are_times[row], found.are_exact[row] = instant.us, True, instant.exact
    return found


def _likeliest_first(texts: pa.Array) -> "Sequence[_Spelling]":
    """The spellings, of which no text has two, beginning with that of the first text: most have the same."""
    first = texts.slice(max(texts.is_valid().index(True).as_py(), 0), 1)
    return sorted(_SPELLINGS, key=lambda each: pc.match_substring_regex(first, each[0]).to_pylist() != [True])


def _rfc_3339(texts: pa.Array) -> Moments | None:
    """What Arrow reads by itself: times that name their zone and have no more than microseconds; None where
    others are among them."""
    first = texts.is_valid().index(True).as_py()
    try:
        texts.slice(max(first, 0), 1).cast(UTC_US)  # Arrow words its refusal anew for every row it refuses
        us = texts.cast(UTC_US).view(pa.int64())
    except pa.ArrowInvalid:
        return None
    if (pc.min(us).as_py() or 0) < _YEAR_1_US:
        return None
    present = us.is_valid().to_numpy(zero_copy_only=False)
    return Moments(us.fill_null(0).to_numpy(), present, np.ones(len(us), bool))


_Read = tuple[Any, Any] | None  # microseconds, whether they are exact; None: each text has to be looked at


def _integers(texts: pa.Array, local: tzinfo) -> _Read:  # noqa: ARG001 - every reader gets it
    numbers = texts.cast(pa.int64()).to_numpy()
    sizes, us = np.abs(numbers), numbers // 1_000
    are_exact = np.ones(len(us), bool)
    of_ns = sizes >= _UNITS_NS[-1][0]
    are_exact[of_ns] = numbers[of_ns] % 1_000 == 0
    for above, (limit, unit_ns) in zip((-1, *(limit for limit, _ in _UNITS_NS)), _UNITS_NS, strict=False):
        of_unit = (sizes < limit) & (sizes >= above)
        us[of_unit] = numbers[of_unit] * (unit_ns // 1_000)
    return us, are_exact


def _seconds(texts: pa.Array, local: tzinfo) -> _Read:  # noqa: ARG001
    """Seconds with a fraction, whose digits are those of a whole number of smaller units."""
    digits = pc.replace_substring(texts, ".", "").cast(pa.int64()).to_numpy()
    places = pc.subtract(pc.binary_length(texts), pc.find_substring(texts, ".")).to_numpy() - 1
    ns = digits * 10 ** (9 - places.astype(np.int64))
    return ns // 1_000, ns % 1_000 == 0


def _iso(texts: pa.Array, local: tzinfo) -> _Read:
    parts = pc.extract_regex(texts, _ISO)
    date, clock, fraction, zone = (parts.field(name) for name in ("date", "clock", "fraction", "zone"))
    zones = zone.dictionary_encode()
    offsets = [_offset_s(name) for name in zones.dictionary.to_pylist()]
    if None in offsets or ("" in zones.dictionary.to_pylist() and local is not UTC):
        return None
    try:
        seconds = pc.binary_join_element_wise(date, clock, "T").cast(_NAIVE).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    ns = pc.utf8_rpad(fraction, 9, "0").cast(pa.int64()).to_numpy()
    us = (seconds - np.array(offsets, np.int64)[zones.indices.to_numpy()]) * 1_000_000 + ns // 1_000
    return None if us.min() < _YEAR_1_US else (us, ns % 1_000 == 0)


def _offset_s(zone: str) -> int | None:
    """Seconds east of Greenwich of `+01:00`; None where no zone is so far from it."""
    if zone in ("", "Z", "z"):
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        return None
    return (hours * 3_600 + minutes * 60) * (-1 if zone[0] == "-" else 1)


def _clf(texts: pa.Array, local: tzinfo) -> _Read:
    day, month, year, clock, hours, minutes = (
        pc.utf8_slice_codeunits(texts, first, end)
        for first, end in ((0, 2), (3, 6), (7, 11), (12, 20), (21, 24), (24, 26))
    )
    months = pc.index_in(month, pa.array(_MONTHS))
    if months.null_count:
        return None
    number = pc.utf8_lpad(pc.add(months, 1).cast(pa.string()), 2, "0")
    date = pc.binary_join_element_wise(year, number, day, "-")
    return _iso(pc.binary_join_element_wise(date, "T", clock, hours, ":", minutes, ""), local)


_Spelling = tuple[str, Callable[[pa.Array, tzinfo], _Read]]
_SPELLINGS: Sequence[_Spelling] = (
    (_ISO, _iso),
    (_INTEGER, _integers),
    (_SECONDS, _seconds),
    (_CLF, _clf),
)
