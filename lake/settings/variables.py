"""Settings from environment variables: `FIRN_<ROOM>_<SETTING>`, and `FIRN_<ROOM>_<GROUP>__<SETTING>` for one
of a group; the path of a secret's file in the same with `_FILE` behind it."""

import os
from collections.abc import Iterator
from typing import Any

import orjson
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from lake.errors import SettingsError
from lake.settings.group import DELIMITER, groups_of, nested, settings_of, variable
from lake.settings.renamed import RENAMED
from lake.settings.secret_files import SUFFIX, secret_names


class Variables(PydanticBaseSettingsSource):
    """What the environment sets for one room.

    Passes on what no longer exists, or never did, under a group's name: the room then refuses it by the
    sentence that it has for such names in a file.
    """

    def __init__(self, settings_cls: type[BaseSettings], room: str) -> None:
        super().__init__(settings_cls)
        self._room = room
        self._prefix = str(settings_cls.model_config.get("env_prefix", ""))
        self._given = {
            name.upper(): value for name, value in os.environ.items() if name.upper().startswith(self._prefix)
        }

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Says what pydantic-settings asks a source for; nothing reads it."""
        return field.default, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Returns the values. Raises SettingsError where a list or table is no JSON."""
        found = [*self._values(), *self._secret_files(), *self._renamed()]
        return nested({name.replace(".", DELIMITER): value for name, value in [*found, *self._unknown()]})

    def _values(self) -> Iterator[tuple[str, Any]]:
        for name, field in settings_of(self.settings_cls):
            text = self._given.get(variable(self._prefix, name))
            if text is not None:
                yield name, self._json(name, text) if self.field_is_complex(field) else text

    def _json(self, name: str, text: str) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            # Without its cause, which shows what was given: it may be a secret.
            raise SettingsError(
                f"settings of {self._room}: {name}: {variable(self._prefix, name)} is no JSON; lists and "
                "tables in variables are written as JSON"
            ) from None

    def _secret_files(self) -> Iterator[tuple[str, str]]:
        """An empty one counts as none."""
        for name in secret_names(self.settings_cls):
            if path := self._given.get(variable(self._prefix, name + SUFFIX)):
                yield name + SUFFIX, path

    def _renamed(self) -> Iterator[tuple[str, str]]:
        secrets = secret_names(self.settings_cls)
        for name, now in RENAMED.get(self._room, {}).items():
            for old in (name, name + SUFFIX) if now in secrets else (name,):
                if variable(self._prefix, old) in self._given:
                    yield old, ""

    def _unknown(self) -> Iterator[tuple[str, str]]:
        names = [name for name, _ in settings_of(self.settings_cls)]
        names += [name + SUFFIX for name in secret_names(self.settings_cls)]
        known = {variable(self._prefix, name) for name in names}
        for group in groups_of(self.settings_cls):
            start = variable(self._prefix, group) + DELIMITER
            for stranger in (each for each in self._given if each.startswith(start) and each not in known):
                yield f"{group}.{stranger.removeprefix(start).lower()}", ""
