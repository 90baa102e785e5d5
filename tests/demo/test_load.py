"""The mixture: the same by seed, spread over its window, by Zipf over tenants, with every kind of fault and
the verdict for each."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.demo.arrivals import arrival_times_ms, relative_rate
from infra.demo.bad_records import BADNESSES, OVERSIZED_BYTES, TIME_FIELDS
from infra.demo.draws import zipf_weights
from infra.demo.load import Mixture, first_load
from infra.demo.producer import MESSAGE_BYTES_MAX
from infra.demo.profiles import PROFILES, TENANT_ZIPF_EXPONENT
from infra.demo.record import GOOD, JSON_TOPIC, DemoRecord
from lake.clock import epoch_ms
from lake.errors import Rejected
from lake.tenant import TenantId, parse_stream, parse_tenant, to_identifier

pytestmark = pytest.mark.long
END = datetime(2026, 11, 21, 15, 28, 29, tzinfo=UTC)
HOURS = 6.0
RECORDS = 30_000
LATE_LIMIT_MS = 3 * 86_400_000
AHEAD_LIMIT_MS = 86_400_000
RECORD_BYTES_MAX = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def load() -> list[DemoRecord]:
    return list(first_load(1, RECORDS, END, HOURS))


@settings(deadline=None, max_examples=3)  # of three mixtures each, which are what takes time
@given(seed=st.integers(min_value=0, max_value=2**63))
def test_seed_and_end_decide_the_load(seed: int) -> None:
    """Two loads with one seed and one end are equal, byte for byte; another seed gives another load."""
    first = list(first_load(seed, 400, END, HOURS))
    assert first == list(first_load(seed, 400, END, HOURS))
    assert first != list(first_load(seed + 1, 400, END, HOURS))


def test_the_mixture_goes_on_after_the_load_without_repeating_itself() -> None:
    """Records asked for later at one and the same moment differ from each other."""
    mixture = Mixture(3)
    values = [mixture.record_at(epoch_ms(END)).value for _ in range(2_000)]
    assert len(set(values)) > 1_900


def test_kafka_timestamps_ascend_inside_the_window(load: list[DemoRecord]) -> None:
    """Records are shipped in ascending order within the hours before the end, in every one of these hours."""
    times = [record.timestamp_ms for record in load]
    end_ms = epoch_ms(END)
    assert len(times) == RECORDS
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert end_ms - HOURS * 3_600_000 <= times[0]
    assert times[-1] < end_ms
    assert len({time // 3_600_000 for time in times}) == HOURS + 1


def test_events_are_mostly_in_order_and_sometimes_late(load: list[DemoRecord]) -> None:
    """Good events happened at most three days before they were shipped, nearly all just before; a few per
    cent are out of order, a few per mille late."""
    delays = [
        record.timestamp_ms - _happened_ms(record)
        for record in load
        if record.topic == JSON_TOPIC and record.kind == GOOD
    ]
    assert min(delays) >= 0
    assert max(delays) < LATE_LIMIT_MS
    out_of_order = sum(delay > 5_000 for delay in delays) / len(delays)
    late = sum(delay > 120_000 for delay in delays) / len(delays)
    assert 0.01 < out_of_order < 0.04
    assert 0.0005 < late < 0.006


def test_tenants_are_as_large_as_zipf_says(load: list[DemoRecord]) -> None:
    """At least six tenants, each with its Zipf share of the good records."""
    counts = Counter(record.tenant for record in load if record.kind == GOOD)
    assert len(counts) == len(PROFILES) >= 6
    for profile, share in zip(PROFILES, zipf_weights(len(PROFILES), TENANT_ZIPF_EXPONENT), strict=True):
        assert counts[profile.tenant] / counts.total() == pytest.approx(share, rel=0.08)


def test_tenants_are_usable_and_stay_apart() -> None:
    """Every profile's name is a valid tenant, and two names that differ by case alone are two namespaces."""
    tenants = [parse_tenant(profile.tenant) for profile in PROFILES]
    assert all(isinstance(tenant, TenantId) for tenant in tenants)
    assert len({to_identifier(profile.tenant) for profile in PROFILES}) == len(PROFILES)
    assert {"acme-shop", "Acme-Shop", "münchen.example"} <= {profile.tenant for profile in PROFILES}
    assert all(
        isinstance(parse_stream(source.stream), str) for profile in PROFILES for source in profile.sources
    )


def test_good_records_have_realistic_sizes(load: list[DemoRecord]) -> None:
    """The middle of the good records has 150 to 1,000 bytes."""
    sizes = sorted(len(record.value) for record in load if record.kind == GOOD)
    assert sizes[len(sizes) // 20] > 150
    assert sizes[len(sizes) * 19 // 20] < 1_000


def test_every_fault_occurs_and_faults_are_rare(load: list[DemoRecord]) -> None:
    """Each kind of bad record is in the load at least once; all together are about one in two hundred."""
    counts = Counter(record.kind for record in load)
    assert {badness.kind for badness in BADNESSES} == counts.keys() - {GOOD}
    assert sum(badness.cards for badness in BADNESSES) == 100
    assert 0.003 < 1 - counts[GOOD] / RECORDS < 0.008


def test_each_record_deserves_its_verdict(load: list[DemoRecord]) -> None:
    """An independent reading of each record, by the rules of routing and decoding, comes to the verdict and
    the tenant it states."""
    for record in load:
        assert (record.expected, record.errors_expected, record.tenant) == _judged(record), record.kind


def test_dead_letters_name_their_tenant_in_the_header_or_not_at_all(load: list[DemoRecord]) -> None:
    """Dead letters can be counted by tenant from their headers alone."""
    for record in load:
        if record.expected == "dead_letter":
            header = dict(record.headers).get("tenant")
            tenant = None if header is None else parse_tenant(header)
            assert record.tenant == (tenant.name if isinstance(tenant, TenantId) else None)


def test_the_oversized_record_is_larger_than_the_limit_and_smaller_than_what_the_topic_takes(
    load: list[DemoRecord],
) -> None:
    """Oversized records pass the broker, so that refusing them is Firn's task."""
    sizes = [len(record.value) for record in load if record.kind == "oversized"]
    assert all(RECORD_BYTES_MAX < OVERSIZED_BYTES <= size < MESSAGE_BYTES_MAX for size in sizes)


@settings(max_examples=40)
@given(
    records=st.integers(min_value=0, max_value=2_000),
    hours=st.floats(min_value=0.01, max_value=72),
    seed=st.text(max_size=8),
)
def test_arrivals_are_as_many_as_asked_for(records: int, hours: float, seed: str) -> None:
    """Any window holds exactly the records asked for, ascending, none outside."""
    start_ms = epoch_ms(END - timedelta(hours=hours))
    times = list(arrival_times_ms(records, start_ms, epoch_ms(END), seed))
    assert len(times) == records
    assert times == sorted(times)
    assert all(start_ms <= time < epoch_ms(END) for time in times)


def test_arrivals_follow_the_hour_of_the_day() -> None:
    """Over a whole day the busiest hour has about four times the records of the quietest."""
    start_ms = epoch_ms(datetime(2026, 11, 20, tzinfo=UTC))
    per_hour = Counter(
        (time - start_ms) // 3_600_000
        for time in arrival_times_ms(100_000, start_ms, start_ms + 86_400_000, "day")
    )
    assert max(per_hour, key=per_hour.__getitem__) in (13, 14)
    assert 3.3 < max(per_hour.values()) / min(per_hour.values()) < 4.5
    assert relative_rate(start_ms + 14 * 3_600_000) == pytest.approx(1.6)


def _judged(record: DemoRecord) -> tuple[str, bool, str | None]:
    """Verdict, errors and tenant of a record by the plain rules, written again without a look at how the
    record was made."""
    headers = dict(record.headers)
    event = _decoded(record)
    named = headers.get("tenant", event.get("tenant") if event is not None else None)
    parsed = None if named is None else parse_tenant(named)
    tenant = parsed.name if isinstance(parsed, TenantId) else None
    stream_refused = isinstance(parse_stream(headers.get("stream", b"logs")), Rejected)
    if (
        event is None
        or tenant is None
        or stream_refused
        or len(record.value) > RECORD_BYTES_MAX
        or _depth(event) > 100
    ):
        return "dead_letter", False, tenant
    if record.topic != JSON_TOPIC:
        return "row", False, tenant
    happened_ms = _happened_ms_of(event)
    if happened_ms is not None and not -AHEAD_LIMIT_MS <= record.timestamp_ms - happened_ms <= LATE_LIMIT_MS:
        return "dead_letter", False, tenant
    names = [name.lower() for name in event]
    errors = (
        happened_ms is None or len(names) != len(set(names)) or any(name.startswith("_") for name in names)
    )
    return "row", errors, tenant


def _decoded(record: DemoRecord) -> dict[str, Any] | None:
    if not record.value:
        return None
    try:
        text = record.value.decode()
        if record.topic != JSON_TOPIC:
            return {"message": text}
        event = orjson.loads(text)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _depth(value: object) -> int:
    levels, depth = [value], 0
    while levels := [inner for level in levels if isinstance(level, dict) for inner in level.values()]:
        depth += 1
    return depth


def _happened_ms(record: DemoRecord) -> int:
    happened_ms = _happened_ms_of(orjson.loads(record.value))
    assert happened_ms is not None
    return happened_ms


def _happened_ms_of(event: dict[str, Any]) -> int | None:
    value = next((event[name] for name in TIME_FIELDS if name in event), None)
    try:
        return (
            None
            if value is None
            else epoch_ms(datetime.fromisoformat(value[:26] + "Z" if len(value) == 30 else value))
        )
    except ValueError:
        return None
