"""Where the files of one table may lie: below its own location, and below the prefixes that an administrator
has granted it.

Metadata, manifest lists and manifests are written by whoever may commit to that table; a URI in them must not
reach anybody else's files. So every URI is checked against the table's place before it is read, queued or
deleted. The catalog asks the same of the URIs of a commit.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import orjson

from lake.errors import ForeignFileError, SettingsError
from lake.storage import canonical

# A table property: a JSON array of URI prefixes. The catalog lets only an administrator's key that is bound
# to no namespace set it.
GRANTS_PROPERTY = "firn.file-locations"
# Properties whose paths writers follow.
PATH_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_PLAIN = re.compile(r"[A-Za-z0-9_=/.-]*[A-Za-z0-9_=-]")
_ODD = re.compile(r"[\\?#\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Partition values are percent-encoded once by those who write them; whoever decodes more often than this
# looks for a hole.
_DECODINGS = 4


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Canonical prefixes, each with a slash at its end, the table's own location first."""

    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "TableLocation":
        """The place that a table's metadata gives it. Raises ForeignFileError where the metadata does not
        say."""
        return cls.at(metadata.get("location"), (metadata.get("properties") or {}).get(GRANTS_PROPERTY))

    @classmethod
    def at(cls, location: object, granted: str | None = None) -> "TableLocation":
        """The place of a table at a location. `granted`: what its property GRANTS_PROPERTY says. Raises
        ForeignFileError."""
        return _table_location(location, granted)

    @property
    def location(self) -> str:
        """The table's own location, empty where it has none."""
        return self.prefixes[0].rstrip("/") if self.prefixes else ""

    def check(self, uri: object) -> str:
        """The prefix below which a file lies, without its slash. Raises ForeignFileError where it is the
        table's by no prefix."""
        if isinstance(uri, str):
            for prefix in self.prefixes:
                # Nearly every URI is spelled as its table's location is, of harmless characters.
                if uri.startswith(prefix):
                    rest = uri[len(prefix) :]
                    if (
                        _PLAIN.fullmatch(rest)
                        and "//" not in rest
                        and "./" not in rest
                        and rest[0] not in "/."
                    ):
                        return prefix[:-1]
        return self._check_slowly(uri)

    def holds(self, uri: object) -> bool:
        """Whether a file is the table's."""
        try:
            self.check(uri)
        except ForeignFileError:
            return False
        return True

    def _check_slowly(self, uri: object) -> str:
        if not isinstance(uri, str):
            raise ForeignFileError(
                f"{uri!r} is no location of a file; restore the metadata of the table at {self.location}"
            )
        try:
            spelled = canonical(uri)
        except SettingsError as error:
            raise ForeignFileError(
                f"the table at {self.location} names a file that nobody reads: {error}"
            ) from error
        for prefix in self.prefixes:
            if spelled.startswith(prefix) and is_plain_path(spelled[len(prefix) :]):
                return prefix[:-1]
        raise ForeignFileError(
            f"{uri!r:.500} is not below the table's location {self.location}; move the file there, or let an "
            "administrator "
            f"grant its prefix in the table property {GRANTS_PROPERTY}"
        )


@lru_cache(maxsize=4_096)  # asked anew for each file of a table
def _table_location(location: object, granted: str | None) -> TableLocation:
    return TableLocation((_prefix(location), *map(_prefix, parse_grants(granted))))


# Of what is no table: no file is in it.
NOWHERE = TableLocation(())


def is_plain_path(path: str) -> bool:
    """Whether a relative path means nothing but itself, also to readers that decode percent signs: no empty,
    `.` or `..` segment, no query."""
    if _ODD.search(path) or "" in path.split("/"):
        return False
    for _ in range(_DECODINGS):
        if not {".", ".."}.isdisjoint(path.split("/")):
            return False
        decoded = unquote(path)
        if decoded == path:
            return True
        path = decoded
    return False


def parse_grants(text: str | None) -> tuple[str, ...]:
    """The prefixes of GRANTS_PROPERTY. Raises ForeignFileError where it is no JSON array of texts."""
    if not text:
        return ()
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ForeignFileError(
            f"the table property {GRANTS_PROPERTY} is no JSON ({error}); give it an array of URI prefixes"
        ) from error
    if not isinstance(found, list) or not all(isinstance(prefix, str) for prefix in found):
        raise ForeignFileError(
            f"the table property {GRANTS_PROPERTY} must be a JSON array of URI prefixes, such as "
            '["s3://bucket/prefix/"]'
        )
    return tuple(found)


def _prefix(location: object) -> str:
    if not isinstance(location, str):
        raise ForeignFileError(f"{location!r} is no location; restore the table's metadata")
    try:
        prefix = canonical(location).rstrip("/") + "/"
    except SettingsError as error:
        raise ForeignFileError(f"a table lies where nobody reads: {error}") from error
    # Of `file:///` or of a bucket alone everything would be the table's.
    _, _, path = prefix.partition("://")
    if (
        path.strip("/") == ""
        or (prefix.startswith("s3:") and path.count("/") < 2)
        or not is_plain_path(path.strip("/"))
    ):
        raise ForeignFileError(
            f"{location!r:.500} is no place of a table; a table lies in a folder of its own below a warehouse"
        )
    return prefix
