"""The demo's mixture of records: tenants by Zipf, each with its shapes, some records late or out of order,
some bad.

Pure: the same seed and the same shipping times give the same records, byte for byte.
"""

import math
from bisect import bisect
from collections.abc import Iterator
from datetime import datetime

import orjson

from infra.demo.arrivals import arrival_times_ms
from infra.demo.bad_records import BADNESSES, Badness, spoil
from infra.demo.draws import Draws, zipf_weights
from infra.demo.profiles import EVENT_SHAPES, LINE_SHAPES, PROFILES, TENANT_ZIPF_EXPONENT, Profile, Source
from infra.demo.record import (
    JSON_TOPIC,
    STREAM_DEFAULT,
    STREAM_HEADER,
    TENANT_FIELD,
    TENANT_HEADER,
    TEXT_TOPIC,
    DemoRecord,
)
from lake.clock import epoch_ms

# On average one record in so many is bad; a whole deck of kinds is dealt before any kind comes again out of
# turn.
RECORDS_PER_BAD = 200

# How long before its shipping an event happened: nearly always a moment, sometimes seconds (which makes the
# order of events differ from that of records), rarely hours or days, but within the three days after which a
# record is too late.
_SHIPPING_MEAN_MS = 150.0
_OUT_OF_ORDER_SHARE = 0.02
_OUT_OF_ORDER_MS = (5_000, 120_000)
_LATE_SHARE = 0.002
_LATE_MS = (120_000, 250_000_000)

_KEY_FIELDS = {"nginx_json": "server", "application": "user_id", "audit": "region", "kubernetes": None}


class EventFeed:
    """One kind of JSON log of one tenant."""

    def __init__(self, profile: Profile, source: Source, draws: Draws) -> None:
        self._shape = EVENT_SHAPES[source.shape](draws, profile.site)
        self._key_field = _KEY_FIELDS[source.shape]
        self._tenant, self._tenant_in_field = profile.tenant, profile.json_tenant_in == "field"
        self._headers = _stream_headers(source) if self._tenant_in_field else _all_headers(profile, source)
        self._headers_of_bad = _all_headers(profile, source)
        self._option = orjson.OPT_APPEND_NEWLINE if source.shape == "kubernetes" else None

    def record(self, shipped_ms: int, happened_ms: int, *, header_needed: bool = False) -> DemoRecord:
        """The next record; with `header_needed` the tenant stands in the header even if this tenant's records
        have it in the field."""
        event = self._shape.event(happened_ms)
        if self._tenant_in_field:
            event[TENANT_FIELD] = self._tenant
        key = None if self._key_field is None else str(event[self._key_field]).encode()
        headers = self._headers_of_bad if header_needed else self._headers
        return DemoRecord(
            JSON_TOPIC,
            key,
            orjson.dumps(event, option=self._option),
            headers,
            shipped_ms,
            self._tenant,
            "row",
            errors_expected=False,
        )


class LineFeed:
    """One kind of text log of one tenant; keyless, as syslog daemons send it."""

    def __init__(self, profile: Profile, source: Source, draws: Draws) -> None:
        self._shape = LINE_SHAPES[source.shape](draws, profile.site)
        self._tenant = profile.tenant
        self._headers = _all_headers(profile, source)

    def record(self, shipped_ms: int, happened_ms: int, *, header_needed: bool = False) -> DemoRecord:  # noqa: ARG002 (text always has the header)
        """The next record."""
        value = self._shape.line(happened_ms).encode()
        return DemoRecord(
            TEXT_TOPIC, None, value, self._headers, shipped_ms, self._tenant, "row", errors_expected=False
        )


Feed = EventFeed | LineFeed


class Mixture:
    """An endless sequence of records; each call gives the next one, shipped at the given moment."""

    def __init__(self, seed: int) -> None:
        self._draws = Draws(f"{seed}/mixture")
        weighted = [
            (_feed(profile, source, seed), tenant_weight * source.weight)
            for profile, tenant_weight in zip(
                PROFILES, zipf_weights(len(PROFILES), TENANT_ZIPF_EXPONENT), strict=True
            )
            for source in profile.sources
        ]
        self._feeds = [feed for feed, _ in weighted]
        self._event_feeds = [feed for feed in self._feeds if isinstance(feed, EventFeed)]
        self._bounds, total = [], 0.0
        for _, weight in weighted[:-1]:
            total += weight
            self._bounds.append(total)
        self._deck: list[Badness] = []
        self._until_bad = self._gap()

    def record_at(self, shipped_ms: int) -> DemoRecord:
        """The next record; `shipped_ms` is its Kafka timestamp in milliseconds since the epoch."""
        self._until_bad -= 1
        if self._until_bad <= 0:
            return self._bad(shipped_ms)
        feed = self._feeds[bisect(self._bounds, self._draws.uniform())]
        return feed.record(shipped_ms, shipped_ms - self._delay_ms())

    def _bad(self, shipped_ms: int) -> DemoRecord:
        self._until_bad = self._gap()
        if not self._deck:
            self._deck = self._draws.shuffled(
                [badness for badness in BADNESSES for _ in range(badness.cards)]
            )
        badness = self._deck.pop()
        feed = self._draws.pick(self._event_feeds if badness.json_only else self._feeds)
        good = feed.record(
            shipped_ms, shipped_ms - self._delay_ms(), header_needed=badness.expected == "dead_letter"
        )
        return spoil(good, badness, self._draws)

    def _gap(self) -> int:
        return 1 + self._draws.below(2 * RECORDS_PER_BAD)

    def _delay_ms(self) -> int:
        uniform = self._draws.uniform
        chance = uniform()
        if chance > _OUT_OF_ORDER_SHARE:
            return int(-_SHIPPING_MEAN_MS * math.log(1.0 - uniform()))
        if chance > _LATE_SHARE:
            least, most = _OUT_OF_ORDER_MS
            return least + int(uniform() * (most - least))
        least, most = _LATE_MS
        return int(least * (most / least) ** uniform())


def first_load(seed: int, records: int, end: datetime, hours: float) -> Iterator[DemoRecord]:
    """`records` records shipped in ascending order in the `hours` before `end`, then nothing."""
    return records_of(Mixture(seed), seed, records, end, hours)


def records_of(
    mixture: Mixture, seed: int, records: int, end: datetime, hours: float
) -> Iterator[DemoRecord]:
    """As `first_load`, from a mixture that the caller keeps and goes on with."""
    end_ms = epoch_ms(end)
    for shipped_ms in arrival_times_ms(records, end_ms - int(hours * 3_600_000), end_ms, f"{seed}/arrivals"):
        yield mixture.record_at(shipped_ms)


def _feed(profile: Profile, source: Source, seed: int) -> Feed:
    draws = Draws(f"{seed}/{profile.tenant}/{source.shape}/{source.stream}")
    return (
        EventFeed(profile, source, draws)
        if source.shape in EVENT_SHAPES
        else LineFeed(profile, source, draws)
    )


def _all_headers(profile: Profile, source: Source) -> tuple[tuple[str, bytes], ...]:
    return ((TENANT_HEADER, profile.tenant.encode()), *_stream_headers(source))


def _stream_headers(source: Source) -> tuple[tuple[str, bytes], ...]:
    """Records of the default stream carry no stream header: that is the default's purpose."""
    return () if source.stream == STREAM_DEFAULT else ((STREAM_HEADER, source.stream.encode()),)
