"""From a service to Kafka: its events go to `python -m ingest serve`, which alone speaks to brokers."""

from collections.abc import Sequence

import httpx

from lake.errors import UnavailableError
from lake.tls import tls_context

TIMEOUT_S, CONNECT_TIMEOUT_S = 60.0, 5.0
PATH = "/v1/audit-events"


class EventSender:
    """Sends events to one `ingest serve`. `token`: its `ingest.http.token`, where it has one."""

    def __init__(self, uri: str, token: str | None) -> None:
        self._uri = uri.rstrip("/")
        self._http = httpx.Client(
            base_url=self._uri,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            verify=tls_context(),
            trust_env=False,
        )

    def __call__(self, events: Sequence[bytes]) -> None:
        """Returns when the topic has them. Raises UnavailableError: then some may be there, and all are to be
        sent again."""
        try:
            response = self._http.post(PATH, json={"events": [event.decode() for event in events]})
        except httpx.HTTPError as error:
            raise UnavailableError(
                f"ingest at {self._uri} does not answer ({type(error).__name__}); is `python -m ingest "
                "serve` running?"
            ) from error
        if not response.is_success:
            raise UnavailableError(
                f"ingest at {self._uri} does not take the audit trail ({response.status_code}): "
                f"{response.text[:300]}"
            )
