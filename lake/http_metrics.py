"""What every HTTP service of Firn counts of requests that it does not answer. A module of its own: the
catalog exposes no other room's metrics."""

from prometheus_client import Counter

REFUSED = Counter(
    "firn_http_requests_refused_total",
    "Requests refused before anything was read of them, by what was wrong",
    ["why"],
)
CLOSED = Counter(
    "firn_http_connections_closed_total",
    "Connections closed on clients that were too slow, too many or too talkative",
    ["why"],
)
