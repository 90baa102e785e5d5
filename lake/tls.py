"""By which certificates the services of Firn trust each other, and show who they are: one setting for every
HTTP client of a process."""

import ssl
from functools import lru_cache

import httpx

from lake.errors import SettingsError
from lake.settings import TlsSettings


def tls_context(*, shows_itself: bool = True) -> ssl.SSLContext:
    """What every client gives its connections. `shows_itself`: not to strangers, who are asked who they are
    and told nothing. Raises SettingsError where a file of the settings cannot be used."""
    settings = TlsSettings.load()
    if not shows_itself:
        return _context(settings.ca, None, None)
    return _context(settings.ca, settings.certificate, settings.key)


@lru_cache(maxsize=8)
def _context(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    context = httpx.create_ssl_context(trust_env=False)
    try:
        if ca:
            context.load_verify_locations(cafile=ca)
        if certificate:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(name for name in (ca, certificate, key) if name)
        told = f"the files for TLS ({files}) cannot be used: {error}"
        raise SettingsError(
            f"{told}; FIRN_TLS_CA, FIRN_TLS_CERTIFICATE and FIRN_TLS_KEY name PEM files"
        ) from error
    return context
