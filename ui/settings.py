"""What the front end is told: where the search API is, who may speak to the pages, where people log in."""

import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import httpx

API_VARIABLE = "FIRN_UI_API"
API_DEFAULT = "http://127.0.0.1:8282"


def tls_context() -> ssl.SSLContext:
    """By which certificates the API is trusted, and what is shown to it: the same variables as everywhere."""
    named = (os.environ.get(f"FIRN_TLS_{name}") for name in ("CA", "CERTIFICATE", "KEY"))
    return _context(*(path or None for path in named))


@lru_cache(maxsize=8)
def _context(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """Made once: to read the certificates of all authorities takes longer than to begin a login."""
    context = httpx.create_ssl_context(trust_env=False)
    if ca:
        context.load_verify_locations(cafile=ca)
    if certificate:
        context.load_cert_chain(certificate, key)
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


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. An empty one means every interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


ISSUER_VARIABLE = "FIRN_UI_OIDC_ISSUER"
CLIENT_VARIABLE = "FIRN_UI_OIDC_CLIENT_ID"
CLIENT_SECRET_VARIABLE = "FIRN_UI_OIDC_CLIENT_SECRET_FILE"  # noqa: S105 - a name, not a secret
REDIRECT_VARIABLE = "FIRN_UI_OIDC_REDIRECT_URI"
TOKEN_VARIABLE = "FIRN_UI_OIDC_TOKEN"  # noqa: S105
SCOPE_VARIABLE = "FIRN_UI_OIDC_SCOPE"
SCOPE_DEFAULT = "openid profile email"
CALLBACK = "/oauth2callback"


class LoginSettingsError(Exception):
    """Logging in cannot work as it is set up; the message says what to do."""


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """Where people log in, as whom the issuer knows the pages, and which token the API gets (`access`,
    `id`)."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    redirect_uri: str
    token: str
    scope: str

    @property
    def discovery_uri(self) -> str:
        """Where the issuer says what it offers."""
        return f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"


def has_login() -> bool:
    """Whether people log in at an issuer."""
    return bool(_text(ISSUER_VARIABLE))


def login_settings() -> LoginSettings | None:
    """What has to be known to log people in; None where nobody logs in. Raises LoginSettingsError."""
    if not has_login():
        return None
    settings = LoginSettings(
        issuer=_text(ISSUER_VARIABLE),
        client_id=_text(CLIENT_VARIABLE),
        client_secret=_secret(CLIENT_SECRET_VARIABLE),
        redirect_uri=_text(REDIRECT_VARIABLE),
        token=_text(TOKEN_VARIABLE) or "access",
        scope=_text(SCOPE_VARIABLE) or SCOPE_DEFAULT,
    )
    if problem := _problem_of(settings):
        raise LoginSettingsError(problem)
    return settings


def _problem_of(settings: LoginSettings) -> str:
    """Why nobody can log in so; empty: nothing is known that would hinder them."""
    if not settings.client_id or not settings.client_secret:
        needed = f"{CLIENT_VARIABLE} and {CLIENT_SECRET_VARIABLE} have to say as whom"
        return f"{needed} the issuer knows these pages"
    if not settings.redirect_uri.endswith(CALLBACK):
        needed = f"{REDIRECT_VARIABLE} has to be the pages' own address"
        return f"{needed} with {CALLBACK} at its end, as the issuer knows it"
    for name, uri in ((ISSUER_VARIABLE, settings.issuer), (REDIRECT_VARIABLE, settings.redirect_uri)):
        if not _is_private(uri):
            return f"{name} has to be an https address (http on this machine alone): tokens depend on it"
    if settings.token not in ("access", "id"):
        return f"{TOKEN_VARIABLE} is `access` or `id`: which of them the API gets"
    if "openid" not in settings.scope.split():
        return f"{SCOPE_VARIABLE} has to name `openid`, or the issuer does not say who somebody is"
    return ""


def _is_private(uri: str) -> bool:
    parts = urlsplit(uri)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    )


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
