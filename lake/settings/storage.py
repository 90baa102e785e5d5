"""Settings of object storage."""

from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from lake.settings.group import SettingsGroup
from lake.settings.room import RoomSettings


class S3Settings(SettingsGroup):
    """S3 and what speaks like it."""

    endpoint: Annotated[str | None, Field(description="URL of an S3-compatible endpoint; empty: AWS")] = None
    region: Annotated[str, Field(description="S3 region")] = "us-east-1"
    access_key_id: Annotated[
        str | None, Field(description="S3 access key; empty: the environment's usual credentials")
    ] = None
    secret_access_key: Annotated[SecretStr | None, Field(description="S3 secret key")] = None
    path_style: Annotated[bool, Field(description="address buckets by path instead of by host name")] = True


class StorageSettings(RoomSettings):
    """Object storage. Local files need none of this."""

    room = "storage"
    model_config = SettingsConfigDict(env_prefix="FIRN_STORAGE_")

    request_timeout_s: Annotated[
        float, Field(description="seconds until one storage request is given up", gt=0)
    ] = 60.0
    s3: S3Settings = S3Settings()
