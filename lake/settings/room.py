"""Where a room's settings come from, and what is said about wrong ones."""

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from lake.errors import SettingsError
from lake.settings.group import SettingsGroup, nested, settings_of, variable
from lake.settings.renamed import RENAMED
from lake.settings.secret_files import SUFFIX, secret_names, take_secrets
from lake.settings.topics import TopicSettings
from lake.settings.variables import Variables

CONFIG_VARIABLE = "FIRN_CONFIG"
CONFIG_DEFAULT = "firn.toml"
DOCS = "docs/settings.md"
# The sections of the settings file, in the order in which people are told of them.
ROOMS = ("storage", "tls", "catalog", "ingest", "optimize", "query", "infra")


def config_file() -> Path | None:
    """The one TOML file of the stack; None where `FIRN_CONFIG` is empty. Only one that the variable names has
    to exist."""
    name = os.environ.get(CONFIG_VARIABLE, CONFIG_DEFAULT)
    return Path(name) if name else None


def _config_document() -> dict[str, Any]:
    """What the file says. Raises SettingsError."""
    path = config_file()
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path} is not valid TOML ({error}); correct it or point {CONFIG_VARIABLE} at another file"
        ) from error
    except OSError as error:
        if isinstance(error, FileNotFoundError) and CONFIG_VARIABLE not in os.environ:
            return {}
        told = (
            f"the settings file {path} cannot be read ({error.strerror}); mend that, or point "
            f"{CONFIG_VARIABLE} at another one (empty: no file)"
        )
        raise SettingsError(told) from error
    if strangers := [f"`{name}`" for name in document if name not in ROOMS]:
        raise SettingsError(
            f"{path}: {', '.join(strangers)} at its top level belongs to no room; its sections are "
            f"{', '.join(f'[{room}]' for room in ROOMS)}"
        )
    return document


class _TomlSection(PydanticBaseSettingsSource):
    """The section of the TOML file that belongs to one room."""

    def __init__(self, settings_cls: type[BaseSettings], room: str) -> None:
        super().__init__(settings_cls)
        self._room = room

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return field.default, field_name, False

    def __call__(self) -> dict[str, Any]:
        section = _config_document().get(self._room, {})
        if not isinstance(section, dict):
            raise SettingsError(
                f"{config_file()}: `{self._room}` is no table; write its settings below a line [{self._room}]"
            )
        return section


class RoomSettings(BaseSettings):
    """Base of the rooms' settings; a wrong value is one `SettingsError` that names the setting and where to
    set it."""

    room: ClassVar[str]
    # Errors never repeat what was given: it may be a secret.
    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _secrets_of_files(cls, given: Any) -> Any:
        return take_secrets(cls, given) if isinstance(given, dict) else given

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base class calls by name
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, Variables(settings_cls, cls.room), _TomlSection(settings_cls, cls.room)

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Reads all sources. `overrides`: `flush__interval_s` sets `flush.interval_s`; those that are None (a
        flag not given) do not count. Raises SettingsError."""
        try:
            return cls(**nested({name: value for name, value in overrides.items() if value is not None}))
        except ValidationError as error:
            raise SettingsError(f"settings of {cls.room}: {cls._told(error.errors())}") from error

    def changed(self, **values: Any) -> Self:
        """Returns these settings with other values, which nobody checks, under names as `load` takes them."""
        update: dict[str, Any] = {}
        for name, value in nested(values).items():
            held = getattr(self, name)
            is_group = isinstance(held, SettingsGroup) and isinstance(value, dict)
            update[name] = held.model_copy(update=value) if is_group else value
        return self.model_copy(update=update)

    @classmethod
    def _told(cls, errors: list[ErrorDetails]) -> str:
        """What is wrong, and where to put it right."""
        unknown = [error["type"] == "extra_forbidden" for error in errors]
        rows = [
            cls._unknown(error["loc"]) if is_unknown else cls._wrong(error)
            for error, is_unknown in zip(errors, unknown, strict=True)
        ]
        advice = []
        if not all(unknown):
            file = config_file()
            section = f", in section [{cls.room}] of {file}," if file else ""
            advice.append(f"Set it as {cls._variable_of(errors)}{section} or by its flag")
        if any(unknown):
            advice.append(f"{DOCS} has all settings")
        return ". ".join(["; ".join(rows), *advice])

    @classmethod
    def _variable_of(cls, errors: list[ErrorDetails]) -> str:
        """The variable of the one setting that is wrong; where several are, or none alone, how all look."""
        prefix = str(cls.model_config.get("env_prefix", ""))
        names = {_dotted(error["loc"][:depth]) for error in errors for depth in (1, 2)}
        wrong = [name for name, _ in settings_of(cls) if name in names]
        return variable(prefix, wrong[0]) if len(wrong) == 1 else f"{prefix}<NAME>"

    @classmethod
    def _wrong(cls, error: ErrorDetails) -> str:
        place, message = _dotted(error["loc"]), error["msg"].removeprefix("Value error, ")
        if error["type"] == "model_type" and len(error["loc"]) == 1:
            message = f"this is a table of settings; write them below a line [{cls.room}.{place}]"
        return f"{place}: {message}" if place else message

    @classmethod
    def _unknown(cls, place: tuple[int | str, ...]) -> str:
        """Says that a setting does not exist, and how it is called now or which one may be meant."""
        name = _dotted(place)
        if (now := cls._renamed(name)) is not None:
            in_environment = variable(str(cls.model_config.get("env_prefix", "")), now)
            return f"{cls.room}.{name} is now {cls.room}.{now}, {in_environment} in the environment"
        if place[0] == "topics":
            close = get_close_matches(str(place[-1]), TopicSettings.model_fields, 1)
        else:
            known = [each for each, _ in settings_of(cls)]
            known += [each + SUFFIX for each in secret_names(cls)]
            close = get_close_matches(name, known, 1)
        return f"there is no setting {name}" + (f", perhaps `{close[0]}` is meant" if close else "")

    @classmethod
    def _renamed(cls, name: str) -> str | None:
        """The name that a setting has today, or the file of one that is a secret."""
        names = RENAMED.get(cls.room, {})
        of_secret = names.get(name.removesuffix(SUFFIX))
        if name.endswith(SUFFIX) and of_secret in secret_names(cls):
            return f"{of_secret}{SUFFIX}"
        return names.get(name)


def _dotted(place: tuple[int | str, ...]) -> str:
    return ".".join(map(str, place))
