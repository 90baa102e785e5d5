"""The token that ingest lets callers in by, where one is set."""

from lake.listening import check_exposure
from lake.settings import IngestSettings


def check_host(settings: IngestSettings, host: str) -> None:
    """Beyond loopback nobody is let in without a token. Raises SettingsError."""
    check_exposure(
        host,
        is_open=lambda: settings.http.token is None,
        refusal=(
            f"ingest refuses to listen on {host} without a token: set FIRN_INGEST_HTTP__TOKEN, and put TLS "
            "in front; or listen on 127.0.0.1"
        ),
    )


def bearer(settings: IngestSettings) -> dict[str, str]:
    """The headers with which one part of ingest asks another."""
    return (
        {}
        if settings.http.token is None
        else {"Authorization": f"Bearer {settings.http.token.get_secret_value()}"}
    )
