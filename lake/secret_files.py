"""Secrets in files of their own: every setting `x` that is a secret has an `x_file` beside it, the path of a
file whose content is the secret (of lists and tables of secrets: as JSON).

An environment is inherited by every child and read by whoever may look at a process, a command line by
everybody on the machine. A file has permissions, and is what containers mount secrets as. White space around
the content does not count.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import orjson
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

SUFFIX = "_file"
BYTES_MAX = 64 * 1024


def secret_names(model: type[BaseModel]) -> list[str]:
    """The settings of a room that are secrets, or lists and tables of them."""
    return [name for name, field in model.model_fields.items() if _holds_secrets(field.annotation)]


def _holds_secrets(kind: Any) -> bool:
    return kind is SecretStr or any(map(_holds_secrets, get_args(kind)))


def _is_one_text(model: type[BaseModel], name: str) -> bool:
    kind = model.model_fields[name].annotation
    return kind is SecretStr or (SecretStr in get_args(kind) and get_origin(kind) not in (dict, list, tuple))


def take_secrets(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    """What was given, with the content of files in place of their paths. Raises ValueError."""
    files = {
        name: given[name + SUFFIX]
        for name in secret_names(model)
        if given.get(name + SUFFIX) not in (None, "")
    }
    if both := [name for name in files if given.get(name) is not None]:
        raise ValueError(f"{both[0]} and {both[0]}{SUFFIX} are both given; leave one of them out")
    rest = {
        key: value
        for key, value in given.items()
        if key.removesuffix(SUFFIX) not in secret_names(model) or not key.endswith(SUFFIX)
    }
    return rest | {
        name: _content(name + SUFFIX, path, is_text=_is_one_text(model, name)) for name, path in files.items()
    }


def _content(setting: str, path: Any, *, is_text: bool) -> Any:
    if not isinstance(path, str | Path):
        raise ValueError(f"{setting}: write the path of a file")  # noqa: TRY004 - pydantic makes a message of a ValueError
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
    if is_text:
        return SecretStr(text)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ValueError(
            f"{setting}: {path} is no JSON; lists and tables of secrets are written as JSON"
        ) from None


class SecretFileVariables(PydanticBaseSettingsSource):
    """The variables `FIRN_<ROOM>_<SECRET>_FILE`; an empty one counts as none."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002 - the base class calls by name
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(self._given())

    def _given(self) -> Iterator[tuple[str, str]]:
        prefix = str(self.settings_cls.model_config.get("env_prefix", ""))
        for name in secret_names(self.settings_cls):
            if path := os.environ.get(f"{prefix}{name}{SUFFIX}".upper()):
                yield name + SUFFIX, path
