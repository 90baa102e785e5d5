"""What a service counts of its audit trail. A module of its own: the catalog exposes no other room's
metrics."""

from prometheus_client import Counter, Gauge

WRITTEN = Counter(
    "firn_audit_events_total", "Events of the audit trail that were written, by kind: act, search", ["kind"]
)
LOST = Counter(
    "firn_audit_events_lost_total",
    "Events that the audit trail could not take; their acts were refused, where audit.required is set",
    ["kind"],
)
WAITING = Gauge(
    "firn_audit_events_waiting",
    "Events of the audit trail that Kafka has not acknowledged yet",
    multiprocess_mode="livesum",
)
