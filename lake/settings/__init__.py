"""Every setting of every room: one class per room, which holds the settings by topic in groups, one row per
setting with its default, unit and help.

Values come, the later the stronger, from the default here, from the section named like the room in one TOML
file (`firn.toml` in the working directory, or where `FIRN_CONFIG` points; empty: no file), from the
environment (`FIRN_<ROOM>_<SETTING>`, and `FIRN_<ROOM>_<GROUP>__<SETTING>` for one of a group), and from the
command line. A secret `x` may stand in a file of its own instead, which `x_file` names in any of these places
(see secret_files.py).
"""

from lake.settings.catalog import CatalogSettings as CatalogSettings
from lake.settings.http import CatalogAccess as CatalogAccess
from lake.settings.http import HttpSettings as HttpSettings
from lake.settings.infra import InfraSettings as InfraSettings
from lake.settings.ingest import IngestSettings as IngestSettings
from lake.settings.kafka import IngestKafka as IngestKafka
from lake.settings.optimize import OptimizeSettings as OptimizeSettings
from lake.settings.query import QuerySettings as QuerySettings
from lake.settings.room import CONFIG_DEFAULT as CONFIG_DEFAULT
from lake.settings.room import CONFIG_VARIABLE as CONFIG_VARIABLE
from lake.settings.room import RoomSettings as RoomSettings
from lake.settings.room import config_file as config_file
from lake.settings.storage import StorageSettings as StorageSettings
from lake.settings.tls import TlsSettings as TlsSettings
from lake.settings.topics import REPLAY_STREAM as REPLAY_STREAM
from lake.settings.topics import REPLAY_TENANT as REPLAY_TENANT
from lake.settings.topics import FormatName as FormatName
from lake.settings.topics import RecordFormat as RecordFormat
from lake.settings.topics import TopicSettings as TopicSettings
