"""What the client of the catalog says where there is none."""

import socket

import pytest

from lake.catalog_client import CatalogClient, NoAnswerError
from lake.errors import SettingsError, UnavailableError

LOOPBACK = "127.0.0.1"


@pytest.mark.parametrize(
    "uri",
    ["", "127.0.0.1:8181", "localhost:8181", "ftp://catalog:1", "http://", "http://catalog:port", "/catalog"],
)
def test_a_uri_that_is_none_of_http_is_told_at_once(uri: str) -> None:
    """It is no outage that could pass."""
    for control, setting in ((False, "catalog.uri"), (True, "control.uri")):
        with pytest.raises(
            SettingsError,
            match=f"{setting} '{uri}' is no base URL; write http://host:port or https://host:port",
        ):
            CatalogClient(uri, control=control)


@pytest.mark.parametrize(
    "uri",
    ["http://127.0.0.1:8181/", "https://catalog.internal/iceberg", "HTTP://catalog", "http://[::1]:8181"],
)
def test_uris_of_http_are_taken(uri: str) -> None:
    """With a path or without."""
    assert CatalogClient(uri).uri == uri.rstrip("/")


@pytest.mark.parametrize(("control", "setting"), [(False, "catalog.uri"), (True, "control.uri")])
def test_nobody_at_the_address_names_what_to_check(control: bool, setting: str) -> None:
    """Whether it runs, and the setting that says where."""
    with socket.create_server((LOOPBACK, 0)) as nobody:
        port = nobody.getsockname()[1]
    with pytest.raises(
        UnavailableError, match=f"did not answer GET /v1/config: .*; is it running, and is {setting} right\\?"
    ):
        CatalogClient(f"http://{LOOPBACK}:{port}", control=control).ping(timeout_s=5.0)


def test_a_catalog_that_takes_its_time_is_at_the_right_address() -> None:
    """Nothing to check there."""
    with socket.create_server((LOOPBACK, 0)) as silent, pytest.raises(NoAnswerError) as raised:
        CatalogClient(f"http://{LOOPBACK}:{silent.getsockname()[1]}").ping(timeout_s=0.1)
    assert "is it running" not in str(raised.value)
