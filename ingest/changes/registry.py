"""The formats of change messages. A new one is a module in this folder and its line here."""

from collections.abc import Callable, Mapping

from ingest.changes import debezium, flattened_debezium, keyed_json, maxwell
from ingest.changes.change import Change, PassedOver, ReadOptions
from ingest.changes.header_key import Headers
from lake.errors import Rejected
from lake.settings import ChangeFormat

ReadChange = Callable[[bytes | None, bytes | None, Headers, ReadOptions], Change | PassedOver | Rejected]
CHANGE_FORMATS: Mapping[ChangeFormat, ReadChange] = {
    "debezium": debezium.read_change,
    "flattened_debezium": flattened_debezium.read_change,
    "maxwell": maxwell.read_change,
    "keyed_json": keyed_json.read_change,
}
