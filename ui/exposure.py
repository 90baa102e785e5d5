"""Who may reach the pages: beyond loopback only people with a key, so the API behind them must ask for
one."""

import httpx

from ui.settings import is_loopback, tls_context

TIMEOUT_S = 10.0


class ExposedError(Exception):
    """Everybody could get in from outside; the message says what to do."""


def check_host(host: str, api_uri: str) -> None:
    """Raises ExposedError where pages on this address would show rows to people without a key."""
    if is_loopback(host):
        return
    what_to_do = (
        "make keys, start the catalog without --anonymous, and put TLS in front; or listen on 127.0.0.1"
    )
    try:
        status = httpx.get(
            f"{api_uri.rstrip('/')}/v1/tenants",
            params={"limit": 1},
            timeout=TIMEOUT_S,
            verify=tls_context(),
            trust_env=False,
        ).status_code
    except httpx.HTTPError as error:
        raise ExposedError(
            f"the front end refuses to listen on {host}: the search API at {api_uri} does not answer "
            f"({type(error).__name__}), "
            f"so nobody knows whether it asks for keys; start it first, or listen on 127.0.0.1"
        ) from error
    if status != httpx.codes.UNAUTHORIZED:
        raise ExposedError(
            f"the front end refuses to listen on {host} while the search API lets callers in without keys: "
            f"{what_to_do}"
        )
