"""What the front end is told: where the search API is, who may speak to the pages, where people log in."""

import os
import secrets
import ssl
from pathlib import Path
from typing import Any

import httpx

API_VARIABLE = "FIRN_UI_API"
API_DEFAULT = "http://127.0.0.1:8282"


def tls_context() -> ssl.SSLContext:
    """By which certificates the API is trusted, and what is shown to it: the same variables as everywhere."""
    context = httpx.create_ssl_context(trust_env=False)
    if ca := os.environ.get("FIRN_TLS_CA"):
        context.load_verify_locations(cafile=ca)
    if certificate := os.environ.get("FIRN_TLS_CERTIFICATE"):
        context.load_cert_chain(certificate, os.environ.get("FIRN_TLS_KEY") or None)
    return context


def api_uri() -> str:
    """The address of the search API."""
    return os.environ.get(API_VARIABLE, API_DEFAULT)


HOST_VARIABLE = "FIRN_UI_HOST"  # set by `python -m ui serve`
HOSTS_VARIABLE = "FIRN_UI_ALLOWED_HOSTS"
ORIGINS_VARIABLE = "FIRN_UI_ALLOWED_ORIGINS"


def host() -> str:
    """The address that is listened on."""
    return os.environ.get(HOST_VARIABLE, "127.0.0.1")


def allowed_hosts() -> list[str]:
    """Further names of this server, as a proxy in front of it passes them on in Host: with commas between
    them; `*.example.org`; `*` for any."""
    return _listed(HOSTS_VARIABLE)


def allowed_origins() -> list[str]:
    """Origins, like https://tools.example.org, of pages besides these that may speak to them: with commas
    between them."""
    return _listed(ORIGINS_VARIABLE)


def _listed(variable: str) -> list[str]:
    return [each.strip() for each in os.environ.get(variable, "").split(",") if each.strip()]


ISSUER_VARIABLE = "FIRN_UI_OIDC_ISSUER"
CLIENT_VARIABLE = "FIRN_UI_OIDC_CLIENT_ID"
CLIENT_SECRET_VARIABLE = "FIRN_UI_OIDC_CLIENT_SECRET_FILE"  # noqa: S105 - a name, not a secret
COOKIE_SECRET_VARIABLE = "FIRN_UI_OIDC_COOKIE_SECRET_FILE"  # noqa: S105
REDIRECT_VARIABLE = "FIRN_UI_OIDC_REDIRECT_URI"
TOKEN_VARIABLE = "FIRN_UI_OIDC_TOKEN"  # noqa: S105
SCOPE_VARIABLE = "FIRN_UI_OIDC_SCOPE"
CALLBACK = "/oauth2callback"


class LoginSettingsError(Exception):
    """Logging in cannot work as it is set up; the message says what to do."""


def has_login() -> bool:
    """Whether people log in at an issuer."""
    return bool(_text(ISSUER_VARIABLE))


def auth_section() -> dict[str, Any] | None:
    """What Streamlit has to know to log people in by the authorization code flow with PKCE; None where nobody
    logs in. Raises LoginSettingsError."""
    if not has_login():
        return None
    client, secret, redirect_uri = (
        _text(CLIENT_VARIABLE),
        _secret(CLIENT_SECRET_VARIABLE),
        _text(REDIRECT_VARIABLE),
    )
    if not client or not secret:
        raise LoginSettingsError(
            f"{CLIENT_VARIABLE} and {CLIENT_SECRET_VARIABLE} have to say as whom the issuer knows these pages"
        )
    if not redirect_uri.endswith(CALLBACK):
        raise LoginSettingsError(
            f"{REDIRECT_VARIABLE} has to be the pages' own address with {CALLBACK} at its end, as the issuer "
            "knows it"
        )
    kind = _text(TOKEN_VARIABLE) or "access"
    if kind not in ("access", "id"):
        raise LoginSettingsError(f"{TOKEN_VARIABLE} is `access` or `id`: which of them the API gets")
    asks = {"scope": _text(SCOPE_VARIABLE) or "openid profile email", "code_challenge_method": "S256"}
    ca = os.environ.get("FIRN_TLS_CA")
    return {
        "redirect_uri": redirect_uri,
        # People log in again after a restart where it is not kept.
        "cookie_secret": _secret(COOKIE_SECRET_VARIABLE) or secrets.token_urlsafe(32),
        "client_id": client,
        "client_secret": secret,
        "server_metadata_url": f"{_text(ISSUER_VARIABLE).rstrip('/')}/.well-known/openid-configuration",
        "expose_tokens": [kind],
        "client_kwargs": {**asks, **({"verify": ca} if ca else {})},
    }


def _text(variable: str) -> str:
    return os.environ.get(variable, "").strip()


def _secret(variable: str) -> str:
    """What a secret's file holds; empty where none is named."""
    path = _text(variable)
    if not path:
        return ""
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LoginSettingsError(f"{variable}: {path} cannot be read ({error})") from error
    if not secret:
        raise LoginSettingsError(f"{variable}: {path} is empty; it has to hold the secret")
    return secret
