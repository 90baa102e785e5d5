"""The state file of a stack: which processes it started, their ports and addresses. Written before and after
each start."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import orjson

from lake.clock import SYSTEM_CLOCK, epoch_ms
from lake.errors import PrerequisiteError, SettingsError

FILE = "stack.json"
VERSION = 1
BY_HAND = (
    "End the processes of this stack by hand (their environment holds FIRN_LAUNCH), then delete the file"
)


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """What is known about one service. `pid` is 0 from the moment a start is planned until the process
    exists, and after a stop.

    `launch` is a random text that the process carries in its environment: it finds the process even when the
    supervisor died before it could note the pid. `created` is the process's start time (seconds since the
    epoch) as psutil tells it.
    """

    name: str
    launch: str = ""
    pid: int = 0
    created: float = 0.0
    ports: Mapping[str, int] = field(default_factory=dict)
    address: str = ""
    log_start: int = 0
    exports: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def planned(self, *, ports: Mapping[str, int], environment: Mapping[str, str], log_start: int) -> Self:
        """The record to write before the process is started."""
        launch = f"{self.name}-{epoch_ms(SYSTEM_CLOCK.now()) // 1000}-{secrets.token_hex(8)}"
        return replace(
            self, launch=launch, pid=0, created=0.0, ports=ports, environment=environment, log_start=log_start
        )

    def stopped(self) -> Self:
        """The record after a stop: the ports, the address and the options stay, for the next start."""
        return replace(self, launch="", pid=0, created=0.0)


@dataclass(frozen=True, slots=True)
class StackState:
    """The whole state file. The watchdog is a ServiceRecord of its own, under its own name."""

    warehouse: str = ""
    database: str = ""
    catalog_uri: str = ""
    services: Mapping[str, ServiceRecord] = field(default_factory=dict)

    def record(self, name: str) -> ServiceRecord:
        return self.services.get(name, ServiceRecord(name))

    def with_record(self, record: ServiceRecord) -> Self:
        return replace(self, services={**self.services, record.name: record})


def load(folder: Path) -> StackState:
    """The state of the stack in a folder; an empty one where nothing was started yet. Raises SettingsError
    where the file is damaged."""
    path = folder / FILE
    try:
        document: dict[str, Any] = orjson.loads(path.read_bytes())
        version = document.pop("version")
        services = {name: _record(fields) for name, fields in document.pop("services").items()}
        state = StackState(services=services, **document)
    except FileNotFoundError:
        return StackState()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingsError(f"{path} cannot be understood ({error}). {BY_HAND}") from error
    if version != VERSION:
        raise SettingsError(
            f"{path} was written by another version of Firn ({version}, not {VERSION}). {BY_HAND}"
        )
    return state


def _record(fields: dict[str, Any]) -> ServiceRecord:
    """A record as it was written, with the names that its variables have now: the keys of a stack from before
    would else be lost."""
    from lake.settings.renamed import variables_now  # a watchdog, which reads no state, needs no settings

    named: dict[str, Any] = {
        name: variables_now(fields[name]) for name in ("exports", "environment") if name in fields
    }
    return ServiceRecord(**fields | named)


def save(folder: Path, state: StackState) -> None:
    """Replaces the state file in one step, readable for the owner alone (it holds the S3 key of the local
    stack). Raises PrerequisiteError."""
    path = folder / FILE
    temporary = folder / f"{FILE}.{os.getpid()}.tmp"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(orjson.dumps({"version": VERSION, **asdict(state)}, option=orjson.OPT_INDENT_2))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise PrerequisiteError(
            f"cannot write {path}: {error.strerror}. Free space or make the folder writable, or choose "
            "another one with --state"
        ) from error
