"""The address that a service listens on: whom it reaches, and that no stranger gets in without a key."""

import ipaddress
import socket
from collections.abc import Callable

from lake.errors import PrerequisiteError, SettingsError

BACKLOG = 1_024


def is_loopback(host: str) -> bool:
    """Whether an address reaches this machine only. An empty one means every interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_exposure(host: str, *, is_open: Callable[[], bool], refusal: str) -> None:
    """Raises SettingsError with `refusal` where an address reaches beyond this machine and `is_open` says
    that callers get in without a key. It is asked only then."""
    if not is_loopback(host) and is_open():
        raise SettingsError(refusal)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0: any free one. Raises PrerequisiteError where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PrerequisiteError(
            f"cannot listen on {host}:{port}: {error.strerror}; free the port or give another"
        ) from error
    return listener
