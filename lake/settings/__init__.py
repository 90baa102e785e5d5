"""Every setting of every room: one class per room, which holds the settings by topic in groups, one row per
setting with its default, unit and help.

Values come, the later the stronger, from the default here, from the section named like the room in one TOML
file (`firn.toml` in the working directory, or where `FIRN_CONFIG` points; empty: no file), from the
environment (`FIRN_<ROOM>_<SETTING>`, and `FIRN_<ROOM>_<GROUP>__<SETTING>` for one of a group), and from the
command line. A secret `x` may stand in a file of its own instead, which `x_file` names in any of these places
(see secret_files.py).
"""

from lake.settings.catalog import CatalogSettings
from lake.settings.group import MIB
from lake.settings.http import CatalogAccess, ControlSettings, HttpSettings
from lake.settings.infra import InfraSettings
from lake.settings.ingest import IngestSettings
from lake.settings.kafka import AuditTopic, IngestKafka, InternalTopics, RegistrySettings
from lake.settings.masking import MaskAction, MaskRule, TopicMasking
from lake.settings.oidc import OidcGrant, OidcSettings
from lake.settings.optimize import OptimizeSettings
from lake.settings.query import QuerySettings
from lake.settings.room import CONFIG_DEFAULT, CONFIG_VARIABLE, RoomSettings, config_file
from lake.settings.storage import StorageSettings
from lake.settings.tls import TlsSettings
from lake.settings.topics import (
    REPLAY_STREAM,
    REPLAY_TENANT,
    ChangeFormat,
    ChangeMode,
    ChangeOrder,
    ChangeSettings,
    FormatName,
    RecordFormat,
    TopicSettings,
)

__all__ = [
    "CONFIG_DEFAULT",
    "CONFIG_VARIABLE",
    "MIB",
    "REPLAY_STREAM",
    "REPLAY_TENANT",
    "AuditTopic",
    "CatalogAccess",
    "CatalogSettings",
    "ChangeFormat",
    "ChangeMode",
    "ChangeOrder",
    "ChangeSettings",
    "ControlSettings",
    "FormatName",
    "HttpSettings",
    "InfraSettings",
    "IngestKafka",
    "IngestSettings",
    "InternalTopics",
    "MaskAction",
    "MaskRule",
    "OidcGrant",
    "OidcSettings",
    "OptimizeSettings",
    "QuerySettings",
    "RecordFormat",
    "RegistrySettings",
    "RoomSettings",
    "StorageSettings",
    "TlsSettings",
    "TopicMasking",
    "TopicSettings",
    "config_file",
]
