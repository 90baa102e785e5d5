"""Settings of the certificates that clients trust and show."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from lake.settings.room import RoomSettings


class TlsSettings(RoomSettings):
    """Certificates of every HTTP client: to the catalog, between the rooms, to Trino."""

    room = "tls"
    model_config = SettingsConfigDict(env_prefix="FIRN_TLS_")

    ca: Annotated[
        str | None,
        Field(
            description="PEM file with certificates that are trusted beside the usual ones: a private CA's"
        ),
    ] = None
    certificate: Annotated[
        str | None,
        Field(description="PEM file with the certificate that a client shows, where a service asks for one"),
    ] = None
    key: Annotated[
        str | None,
        Field(description="PEM file with that certificate's private key; empty: it is in the same file"),
    ] = None
