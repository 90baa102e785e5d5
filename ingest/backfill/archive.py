"""The files of an archive: those that patterns name, on local disks and on S3, each as it is now."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lake.backfill_mark import source_id
from lake.errors import FatalError, NotFoundError, SettingsError
from lake.storage import AnyStorage, StoredObject, canonical

_WILD = re.compile(r"[*?\[]")


class UnusableFileError(FatalError):
    """A file cannot be read, or is not the one that was read before. The others can be."""


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One file. `modified_ms` stands for the Kafka timestamp that its records do not have."""

    uri: str
    size: int
    etag: str
    modified_ms: int

    @property
    def source(self) -> str:
        """Its id, which is also the topic id of its rows."""
        return source_id(self.uri)


def find_files(patterns: Sequence[str], storage: AnyStorage) -> list[ArchiveFile]:
    """The files that patterns name, in the order of their URIs, each once.

    A pattern is a path or URI; `*` and `?` stand for characters of one name, `[...]` for one of several, `**`
    for any folders. Raises NotFoundError where a pattern names nothing, SettingsError for a folder,
    UnavailableError.
    """
    found: dict[str, StoredObject] = {}
    for pattern in patterns:
        if not pattern:
            raise SettingsError("a file's name is empty; give a path, a URI or a pattern")
        uri = _absolute(pattern)
        files = _matching(uri, storage)
        if not files:
            raise _nothing(pattern, uri)
        found |= {file.uri: file for file in files}
    return [
        ArchiveFile(uri, file.size, file.etag, int(file.modified.timestamp() * 1000))
        for uri, file in sorted(found.items())
    ]


def current(file: ArchiveFile, storage: AnyStorage) -> bool:
    """Whether the file is still the one that was found."""
    now = storage.stat(file.uri)
    return now is not None and (now.size, now.etag) == (file.size, file.etag)


def _absolute(pattern: str) -> str:
    """A pattern's canonical URI; paths without a scheme are of this machine."""
    return canonical(pattern if re.match(r"[a-z][a-z0-9]*:", pattern) else str(Path(pattern).absolute()))


def _matching(uri: str, storage: AnyStorage) -> list[StoredObject]:
    exact = storage.stat(uri)  # a name may hold characters that are wild elsewhere
    if exact is not None:
        return [exact]
    wild = _WILD.search(uri)
    if wild is None:
        return []
    folder = uri[: uri.rindex("/", 0, wild.start())]
    matches = re.compile(_expression(uri)).fullmatch
    return [file for file in storage.list(folder) if matches(file.uri)]


def _expression(pattern: str) -> str:
    """A glob as a regular expression over whole URIs."""
    expression, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            expression, at = expression + "(?:[^/]+/)*", at + 3
        elif pattern.startswith("**", at):
            expression, at = expression + ".*", at + 2
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            inside = pattern[at + 1 : end].replace("\\", "\\\\")
            expression, at = (
                expression + "[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]",
                end + 1,
            )
        else:
            expression, at = (
                expression + {"*": "[^/]*", "?": "[^/]"}.get(pattern[at], re.escape(pattern[at])),
                at + 1,
            )
    return expression


def _nothing(pattern: str, uri: str) -> NotFoundError | SettingsError:
    if uri.startswith("file:") and Path(uri.removeprefix("file://")).is_dir():
        return SettingsError(
            f"{pattern} is a folder; write {pattern.rstrip('/')}/** for all files below it, or */*.gz for "
            "some"
        )
    return NotFoundError(
        f"no file matches {pattern} (looked for {uri}); check the path, and quote patterns so that the shell "
        "leaves them alone"
    )
