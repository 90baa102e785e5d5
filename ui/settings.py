"""What the front end is told: where the search API is, and who may speak to the pages."""

import os
import ssl

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
