"""A service with structured JSON logs; where something fails, `message` holds a stack trace of many lines."""

from infra.demo.draws import Draws
from infra.demo.moments import rfc3339_millis

_SERVICES = ("checkout", "catalog-search", "payments", "stock", "mailer", "recommendations")
_LOGGERS = ("http.server", "orders.repository", "payments.gateway", "cache.client", "events.publisher")
_EXCEPTIONS = (
    ("java.net.SocketTimeoutException", "Read timed out after 3000 ms"),
    ("java.lang.NullPointerException", 'Cannot invoke "Order.total()" because "order" is null'),
    ("java.util.concurrent.RejectedExecutionException", "queue of 512 tasks is full"),
    (
        "org.postgresql.util.PSQLException",
        "ERROR: deadlock detected\n  Detail: Process 4711 waits for ShareLock on transaction 99120",
    ),
    ("shop.payments.CardRefusedException", "issuer answered 05 (do not honour)"),
)
_PLACES = (
    "OrderService.place",
    "OrderRepository.insert",
    "CardGateway.charge",
    "RetryTemplate.execute",
    "TransactionScope.run",
    "RequestPipeline.next",
    "Worker.run",
)
_EVENTS = (
    "order {n} placed, {k} items, total {n}.{k} EUR",
    "cart {h} restored from session",
    "GET /stock/{n} answered in {k} ms",
    "published event order.paid for order {n} to partition {k}",
    "mail „Ihre Bestellung {n}“ queued ✉",
    "cache miss for product:{n}, loaded from replica {k}",
    "token of session {h} renewed",
)
_TRACES = 60


class Application:
    """One shop's services. `event` gives a log event at a moment: structured fields, and a stack trace in
    about 3 % of them."""

    def __init__(self, draws: Draws, site: str) -> None:
        self._draws = draws
        self._services = draws.zipf_pool(_SERVICES)
        self._users = draws.zipf_pool([f"u-{number:05}" for number in range(2_000)], 1.0)
        self._durations_ms = draws.log_normal_pool(24.0, 1.0)
        self._templates = draws.zipf_pool(_EVENTS, 0.7)
        self._levels = draws.weighted_pool([("INFO", 78), ("DEBUG", 12), ("WARN", 7), ("ERROR", 3)])
        self._traces = [_stack_trace(draws) for _ in range(_TRACES)]
        self._site = site

    def event(self, at_ms: int) -> dict[str, object]:
        draws = self._draws
        level, service = draws.pick(self._levels), draws.pick(self._services)
        number = draws.below(10**6)
        event: dict[str, object] = {
            "timestamp": rfc3339_millis(at_ms),
            "level": level,
            "message": draws.pick(self._templates).format(n=number, k=draws.below(100), h=draws.hex(12)),
            "logger": draws.pick(_LOGGERS),
            "service": service,
            "instance": f"{service}-{draws.below(6)}.{self._site}",
            "thread": f"worker-{draws.below(32)}",
            "trace_id": draws.hex(32),
            "span_id": draws.hex(16),
            "user_id": draws.pick(self._users),
            "duration_ms": round(draws.pick(self._durations_ms), 2),
            "http": {
                "method": "POST" if number % 5 == 0 else "GET",
                "route": "/orders/{id}",
                "status": 500 if level == "ERROR" else 200,
            },
            "tags": ["shop", service],
            "sampled": number % 10 == 0,
        }
        if level == "ERROR":
            event["message"] = f"request {draws.hex(8)} failed: {draws.pick(self._traces)}"
            event["retry"] = {"attempt": 1 + number % 3, "next_in_ms": None if number % 3 == 2 else 250}
        return event


def _stack_trace(draws: Draws) -> str:
    name, text = draws.pick(_EXCEPTIONS)
    lines = [f"{name}: {text}"]
    lines += [_frame(draws) for _ in range(4 + draws.below(8))]
    if draws.uniform() < 0.5:
        cause, cause_text = draws.pick(_EXCEPTIONS)
        lines += [
            f"Caused by: {cause}: {cause_text}",
            *(_frame(draws) for _ in range(2 + draws.below(4))),
            "\t... 12 more",
        ]
    return "\n".join(lines)


def _frame(draws: Draws) -> str:
    place = draws.pick(_PLACES)
    return f"\tat shop.{place}({place.split('.')[0]}.java:{20 + draws.below(400)})"
