"""Settings of the stack on one machine."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from lake.settings.group import SettingsGroup
from lake.settings.room import RoomSettings


class InfraKafka(SettingsGroup):
    """The Kafka broker."""

    heap_mb: Annotated[int, Field(description="Java heap of Kafka, MiB", ge=192)] = 512
    access: Annotated[
        Path | None,
        Field(
            description=(
                "folder with ca.pem, broker.pem (private key and certificate), admin.password and "
                "firn.password: Kafka then asks for users or certificates, over TLS, and has an authorizer; "
                "empty: open on loopback"
            )
        ),
    ] = None


class InfraTrino(SettingsGroup):
    """The Trino coordinator."""

    heap_mb: Annotated[int, Field(description="Java heap of Trino, MiB", ge=768)] = 1024
    access: Annotated[
        Path | None,
        Field(
            description=(
                "folder that `python -m query trino-access` wrote: Trino then asks for passwords, "
                "over TLS; empty: open on loopback"
            )
        ),
    ] = None
    catalog_token: Annotated[
        SecretStr | None,
        Field(
            description=(
                "API key of scope read that Trino asks the catalog with, where the catalog asks for keys"
            )
        ),
    ] = None


class InfraSettings(RoomSettings):
    """The stack on one machine."""

    room = "infra"
    model_config = SettingsConfigDict(env_prefix="FIRN_INFRA_")

    state: Annotated[
        Path,
        Field(
            description=(
                "folder of the running stack: its state file, logs and data; relative to the repository root"
            )
        ),
    ] = Path("state")
    cache: Annotated[
        Path,
        Field(
            description=(
                "folder of downloaded JVM parts and of the built native core (FIRN_CACHE goes before it); "
                "relative to the repository root"
            )
        ),
    ] = Path(".cache")
    quick_java: Annotated[
        bool,
        Field(
            description=(
                "compile Java code quickly instead of well: halves start times; turn off to measure "
                "throughput of Kafka or Trino"
            )
        ),
    ] = True
    ready_timeout_factor: Annotated[
        float,
        Field(description="multiplies every time limit for becoming ready; raise it on a slow machine", gt=0),
    ] = 1.0
    kafka: InfraKafka = InfraKafka()
    trino: InfraTrino = InfraTrino()
