"""Settings that rooms have in common: of those that speak HTTP, and of those that ask the catalog."""

from typing import Annotated

from pydantic import Field, SecretStr

from lake.settings.group import SettingsGroup

Port = Annotated[int, Field(description="port to listen on; 0: any free one", ge=0, le=65535)]
ListenHost = Annotated[str, Field(description="address to listen on")]


class HttpSettings(SettingsGroup):
    """What a service that speaks HTTP takes from callers."""

    allowed_hosts: Annotated[
        tuple[str, ...],
        Field(
            description="names that requests may carry in their Host header, besides localhost, the "
            "machine's own, `host` and, where others reach it, numbers: "
            "those of a proxy or a Kubernetes service; `*.example.org` for all below one, `*` for any"
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Field(
            description=(
                "origins, like https://tools.example.org, of the web pages that may speak to this "
                "service from a browser, besides its own"
            )
        ),
    ] = ()
    request_timeout_s: Annotated[
        float,
        Field(
            description=(
                "seconds in which a request has to arrive whole, and in which a client that reads "
                "nothing of its answer is given up"
            ),
            gt=0,
        ),
    ] = 60.0
    connections_max: Annotated[
        int,
        Field(
            description="open connections; beyond, the one goes that has kept the server waiting longest",
            ge=8,
        ),
    ] = 1_000
    request_bytes_max: Annotated[
        int, Field(description="bytes of the largest request body that is read", ge=1_000)
    ] = 16 * 1024 * 1024


class CatalogAccess(SettingsGroup):
    """The Iceberg REST catalog that holds the tables."""

    uri: Annotated[str, Field(description="base URL of the REST catalog")] = "http://127.0.0.1:8181"
    token: Annotated[SecretStr | None, Field(description="API key for the catalog")] = None


class ControlSettings(SettingsGroup):
    """The control service beside another REST catalog."""

    uri: Annotated[
        str,
        Field(
            description=(
                "base URL of `catalog serve --control`, which holds the node's lease, the parked records "
                "and the work list of erasures beside another REST catalog"
            )
        ),
    ] = ""
    token: Annotated[SecretStr | None, Field(description="API key for the control service")] = None
