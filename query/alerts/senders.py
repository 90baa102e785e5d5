"""Telling receivers: Alertmanager by its API, webhooks by signed requests. Each call is one attempt."""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Any

import httpx
import orjson

from lake.clock import Clock
from lake.errors import FirnError, RefusedError, UnavailableError
from lake.tenant import TenantId
from lake.tls import tls_context
from query.alerts.rule_state import Episode, Kind, Message
from query.alerts.targets import Resolve, address_for, resolve, target_of
from query.alerts.windows import time_text

TIMEOUT_S = 5.0
SIGNATURE_HEADER, ID_HEADER, TIME_HEADER = "Firn-Signature", "Firn-Message-Id", "Firn-Timestamp"
_ALERTS = "/api/v2/alerts"


class UnusableError(FirnError):
    """A receiver understood a message and will never take it."""


class Alertmanager:
    """One Prometheus Alertmanager (its OpenAPI, `POST /api/v2/alerts`). Alerts are known by their labels, so
    it is no harm to tell one again. `lasting_s`: how long an alert lasts there that is not told again."""

    def __init__(
        self, uri: str, clock: Clock, lasting_s: float, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._clock = clock
        self._lasting_s = lasting_s
        self._http = httpx.Client(
            base_url=uri.rstrip("/"),
            timeout=TIMEOUT_S,
            verify=tls_context(),
            trust_env=False,
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    def tell(self, told: Iterable[tuple[Kind, Episode]]) -> None:
        """Tells alerts. Raises UnavailableError, UnusableError."""
        now_s = self._clock.now().timestamp()
        body = [self._alert(kind, episode, now_s) for kind, episode in told]
        try:
            answer = self._http.post(_ALERTS, json=body)
        except httpx.HTTPError as error:
            raise UnavailableError(f"Alertmanager does not answer ({type(error).__name__})") from error
        if answer.status_code == httpx.codes.BAD_REQUEST:
            raise UnusableError(f"Alertmanager answers 400: {answer.text[:200]}")
        if not answer.is_success:
            raise UnavailableError(f"Alertmanager answers {answer.status_code}")

    def _alert(self, kind: Kind, episode: Episode, now_s: float) -> dict[str, Any]:
        ends_s = now_s if kind == "resolved" else now_s + self._lasting_s
        started_s = min(episode.first, int(now_s) - 1)
        link = {"generatorURL": episode.link} if episode.link.startswith("http") else {}
        return {
            "labels": dict(episode.labels),
            "annotations": dict(episode.annotations),
            "startsAt": time_text(started_s),
            "endsAt": time_text(int(ends_s)),
            **link,
        }


class Webhooks:
    """All webhooks. `secret`: the operator's, from which each tenant's key is made, so that one tenant's
    receiver cannot sign as another's."""

    def __init__(
        self, allowed: Sequence[str], secret: str, clock: Clock, resolve_name: Resolve = resolve
    ) -> None:
        self._allowed = allowed
        self._secret = secret
        self._clock = clock
        self._resolve = resolve_name
        self._http = httpx.Client(
            timeout=TIMEOUT_S,
            verify=tls_context(shows_itself=False),
            trust_env=False,
            follow_redirects=False,
        )

    def close(self) -> None:
        self._http.close()

    def tell(self, tenant: TenantId, rule: str, message: Message) -> None:
        """Sends one message. Raises UnusableError where its target is not allowed (any more),
        UnavailableError."""
        try:
            target = target_of(message.to, self._allowed)
            address = address_for(target, self._resolve)
        except RefusedError as error:
            raise UnusableError(str(error)) from error
        url = httpx.URL(target.url)
        body = orjson.dumps(body_of(tenant, rule, message))
        request = self._http.build_request(
            "POST",
            url.copy_with(host=address),
            content=body,
            headers={**self._headers(tenant, message, body), "Host": url.netloc.decode()},
            extensions={"sni_hostname": target.host},
        )
        try:
            answer = self._http.send(request, stream=True)  # nobody reads what it says
            answer.close()
        except httpx.HTTPError as error:
            raise UnavailableError(f"{target.place} does not answer ({type(error).__name__})") from error
        if not answer.is_success:
            raise UnavailableError(f"{target.place} answers {answer.status_code}")

    def _headers(self, tenant: TenantId, message: Message, body: bytes) -> dict[str, str]:
        now = str(int(self._clock.now().timestamp()))
        signed = b".".join((message.id.encode(), now.encode(), body))
        signature = hmac.new(tenant_key(self._secret, tenant), signed, hashlib.sha256).hexdigest()
        return {
            "Content-Type": "application/json",
            ID_HEADER: message.id,
            TIME_HEADER: now,
            SIGNATURE_HEADER: f"v1={signature}",
        }


def body_of(tenant: TenantId, rule: str, message: Message) -> dict[str, Any]:
    """What a webhook is told: the same however often it is sent."""
    episode = message.episode
    return {
        "id": message.id,
        "kind": message.kind,
        "alert": episode.id,
        "tenant": tenant.name,
        "rule": rule,
        "labels": dict(episode.labels),
        "annotations": dict(episode.annotations),
        "value": episode.value,
        "began": time_text(episode.began),
        "fired": time_text(episode.first),
        "ended": None if episode.last is None else time_text(episode.last),
        "link": episode.link,
    }


def tenant_key(secret: str, tenant: TenantId) -> bytes:
    """The key that messages of a tenant are signed with."""
    made = hmac.new(secret.encode(), f"firn webhook {tenant.namespace}".encode(), hashlib.sha256)
    return made.hexdigest().encode()
