"""Whom an address reaches, and who is let in there."""

import socket

import pytest

from lake.errors import PrerequisiteError, SettingsError
from lake.listening import check_exposure, is_loopback, listen

HERE = ["127.0.0.1", "127.9.9.9", "::1", "localhost"]
ANYWHERE = ["0.0.0.0", "::", "", "192.0.2.7", "catalog.internal"]


@pytest.mark.parametrize("host", HERE)
def test_this_machine_is_open_to_itself(host: str) -> None:
    assert is_loopback(host)
    check_exposure(host, is_open=lambda: pytest.fail("asked"), refusal="")


@pytest.mark.parametrize("host", ANYWHERE)
def test_beyond_it_nobody_gets_in_without_a_key(host: str) -> None:
    assert not is_loopback(host)
    check_exposure(host, is_open=lambda: False, refusal="no")
    with pytest.raises(SettingsError, match="no"):
        check_exposure(host, is_open=lambda: True, refusal="no")


def test_a_taken_port_is_told() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert taken.family is socket.AF_INET
        with pytest.raises(PrerequisiteError, match=f"127.0.0.1:{port}: Address already in use"):
            listen("127.0.0.1", port)
