"""Secrets in files of their own: every setting `x` that is a secret has an `x_file` beside it, the path of a
file whose content is the secret (of lists and tables of secrets: as JSON).

An environment is inherited by every child and read by whoever may look at a process, a command line by
everybody on the machine. A file has permissions, and is what containers mount secrets as. White space around
the content does not count.

A secret that is one text is read from its file again whenever it is asked for, so that a new one need not be
told; lists and tables of secrets are read once.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_origin

import orjson
from pydantic import BaseModel, SecretStr

from lake.settings.group import groups_of, settings_of

SUFFIX = "_file"
BYTES_MAX = 64 * 1024


class FileSecret(SecretStr):
    """A secret that its file may change. In another process it is what it was here when it was sent."""

    def __init__(self, secret_value: str, path: Path) -> None:
        super().__init__(secret_value)
        self.path = path

    def get_secret_value(self) -> str:
        """Returns what the file holds; what it held last, where it cannot be read now or holds no secret."""
        with suppress(ValueError):
            self._secret_value = read_secret("", self.path)
        return self._secret_value

    def __reduce__(self) -> tuple[type[SecretStr], tuple[str]]:
        return SecretStr, (self.get_secret_value(),)


def files_of(settings: BaseModel) -> list[str]:
    """Returns the files of the secrets in a room's settings that are read again."""
    found: list[str] = []
    for name in type(settings).model_fields:
        match getattr(settings, name):
            case FileSecret(path=path):
                found.append(str(path))
            case BaseModel() as group:
                found += files_of(group)
    return found


def secret_names(model: type[BaseModel]) -> list[str]:
    """Returns the settings of a room, or of a group, that are secrets, or lists and tables of them; those of
    a room's groups as `group.name`."""
    return [name for name, field in settings_of(model) if holds_secrets(field.annotation)]


def holds_secrets(kind: Any) -> bool:
    """Returns whether a setting of this type is a secret, or a list or table of them."""
    return kind is SecretStr or any(map(holds_secrets, get_args(kind)))


def _is_one_text(model: type[BaseModel], name: str) -> bool:
    kind = model.model_fields[name].annotation
    return kind is SecretStr or (SecretStr in get_args(kind) and get_origin(kind) not in (dict, list, tuple))


def take_secrets(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    """Returns what was given, with the content of files in place of their paths, in the room and in its
    groups. Raises ValueError."""
    groups = {
        name: _take_own(group, given[name], f"{name}.")
        for name, group in groups_of(model).items()
        if isinstance(given.get(name), dict)
    }
    return _take_own(model, given, "") | groups


def _take_own(model: type[BaseModel], given: dict[str, Any], path: str) -> dict[str, Any]:
    """Does it for the secrets that stand directly in a model. `path`: what errors put before their names."""
    secrets = [name for name in secret_names(model) if name in model.model_fields]
    files = {name: given[name + SUFFIX] for name in secrets if given.get(name + SUFFIX) not in (None, "")}
    if both := [path + name for name in files if given.get(name) is not None]:
        raise ValueError(f"{both[0]} and {both[0]}{SUFFIX} are both given; leave one of them out")
    settings_of_files = {name + SUFFIX for name in secrets}
    rest = {key: value for key, value in given.items() if key not in settings_of_files}
    return rest | {
        name: _content(path + name + SUFFIX, file, is_text=_is_one_text(model, name))
        for name, file in files.items()
    }


def _content(setting: str, path: Any, *, is_text: bool) -> Any:
    if not isinstance(path, str | Path):
        raise ValueError(f"{setting}: write the path of a file")  # noqa: TRY004 - pydantic makes a message of a ValueError
    text = read_secret(setting, path)
    if is_text:
        return FileSecret(text, Path(path).absolute())
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ValueError(
            f"{setting}: {path} is no JSON; lists and tables of secrets are written as JSON"
        ) from None


def read_secret(setting: str, path: str | Path) -> str:
    """Returns what a file holds, without white space around it. Raises ValueError, which names the
    setting."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        text = content.decode().strip()
    except OSError as error:
        raise ValueError(
            f"{setting}: {path} cannot be read ({error.strerror}); name a file that this user may read"
        ) from error
    except UnicodeDecodeError:
        raise ValueError(f"{setting}: {path} holds no text") from None
    if not text or len(content) > BYTES_MAX:
        raise ValueError(
            f"{setting}: {path} {'is empty' if not text else f'is larger than {BYTES_MAX:,} bytes'}; it has "
            "to hold the secret and nothing else"
        )
    return text
