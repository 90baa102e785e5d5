"""Webhooks of rules go where the operator allows and nowhere else: no other host or port, no redirect, no
address of a cloud's metadata, whatever a name resolves to; and the secret that signs them comes out
nowhere."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from lake.clock import SystemClock
from lake.errors import RefusedError, UnavailableError
from lake.tenant import TenantId
from query.alerts.rule_state import Episode, Message
from query.alerts.senders import UnusableError, Webhooks, tenant_key
from query.alerts.targets import address_for, target_of
from tests.query.support.alert_world import SECRET, WAIT_S, Receiver, world
from tests.stack.support.waiting import wait_for

ALLOWED = ("hooks.example.org:443", "127.0.0.1:8080", "[::1]:9000")


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.org.evil.example/x",
        "https://hooks.example.org:444/x",
        "http://hooks.example.org/x",
        "https://hooks.example.org@evil.example/x",
        "https://user:pass@hooks.example.org/x",
        "https://evil.example\\@hooks.example.org/x",
        "https://hooks.example.org /x",
        "https://hooks.example.org/x#y",
        "https://hooks。example.org/x",
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:8081/x",
        "http://localhost:8080/x",
        "http://0x7f000001:8080/x",
        "http://[::1]:9001/x",
        "file:///etc/passwd",
        "gopher://hooks.example.org:443/x",
        "hooks.example.org:443",
        "https://",
        "http://127.0.0.1:99999/x",
        "http://[::1/x",
    ],
)
def test_an_address_that_is_not_allowed_is_refused(url: str) -> None:
    """Whatever spelling it takes."""
    with pytest.raises(RefusedError):
        target_of(url, ALLOWED)


def test_an_address_that_is_allowed_is_taken_apart() -> None:
    """The port that a scheme stands for counts, and letters' case does not."""
    assert target_of("https://HOOKS.example.org/x?y=z", ALLOWED).place == "hooks.example.org:443"
    assert target_of("http://[::1]:9000/", ALLOWED).place == "[::1]:9000"


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fe80::1%eth0",
        "::ffff:169.254.169.254",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "255.255.255.255",
    ],
)
def test_a_name_that_leads_to_metadata_is_refused(address: str) -> None:
    """Also where it has a sound address beside it: the next question may get the other one."""
    target = target_of("https://hooks.example.org/x", ALLOWED)
    with pytest.raises(RefusedError, match="it is at"):
        address_for(target, lambda *_: ["203.0.113.7", address])
    with pytest.raises(UnavailableError):
        address_for(target, lambda *_: [])


def message(to: str) -> Message:
    episode = Episode("e", 60, 60, None, 1.0, {"alertname": "x"}, {})
    return Message("id", to, "firing", "[]", episode)


def test_a_redirect_is_not_followed() -> None:
    """Its target was allowed by nobody."""
    with Receiver(status=307).running() as hook:
        sender = Webhooks((f"127.0.0.1:{hook.port}",), SECRET, SystemClock())
        with pytest.raises(UnavailableError, match="307"):
            sender.tell(TenantId("acme"), "r", message(f"{hook.uri}/x"))
        assert hook.asked == 1
        sender.close()


def test_the_name_is_asked_once_and_its_answer_is_what_is_connected_to() -> None:
    """So that nobody changes it in between; the host that was allowed is the one that is told."""
    with Receiver().running() as hook:
        asked: list[str] = []

        def resolve(host: str, _: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"]

        place = f"hooks.example.org:{hook.port}"
        sender = Webhooks((place,), SECRET, SystemClock(), resolve)
        sender.tell(TenantId("acme"), "r", message(f"http://{place}/x"))
        sender.close()
    assert asked == ["hooks.example.org"]
    assert hook.taken[0][0]["Host"] == place


def test_a_target_that_is_allowed_no_more_gets_nothing() -> None:
    """Also of messages that were waiting."""
    with Receiver().running() as hook:
        sender = Webhooks((), SECRET, SystemClock())
        with pytest.raises(UnusableError, match=r"alerts\.webhook_targets"):
            sender.tell(TenantId("acme"), "r", message(f"{hook.uri}/x"))
        assert hook.asked == 0
        sender.close()


def test_each_tenant_has_a_key_of_its_own() -> None:
    """Which does not tell the secret, nor another tenant's key."""
    first, second = tenant_key(SECRET, TenantId("a")), tenant_key(SECRET, TenantId("b"))
    assert first != second
    assert SECRET.encode() not in first


def test_the_secret_is_in_no_log_and_in_nothing_that_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether a receiver takes its messages or fails."""
    condition: dict[str, Any] = {"mode": "count", "over": 0}
    with Receiver(status=500).running() as hook:
        with world(tmp_path, webhook_targets=(f"127.0.0.1:{hook.port}",)) as lake:
            rule = {
                "name": "r",
                "condition": condition,
                "window": "1m",
                "delay": 0,
                "notify": [f"{hook.uri}/x"],
            }
            lake.keep(rule, {**rule, "name": "other", "notify": ["http://169.254.169.254/x"]})
            lake.at(0)
            lake.rows({"at": 30})
            for at in (60, 61, 62, 120):
                lake.at(at)

            def is_given_up() -> bool:
                lake.evaluator.step(None)
                return "undelivered" in {event["kind"] for event in lake.state("other").history}

            wait_for(is_given_up, WAIT_S, "the message to nowhere being given up")
            wait_for(lambda: hook.asked, WAIT_S, "the other one being sent")
            written = str(lake.catalog.tasks)
    told = capfd.readouterr()
    for text in (written, told.out, told.err):
        assert SECRET not in text
        assert tenant_key(SECRET, TenantId("acme")).decode() not in text


def test_httpx_takes_the_address_for_a_host() -> None:
    """What the sender rests on: the URL's host is the address, and the header has the name."""
    url = httpx.URL("https://hooks.example.org/x").copy_with(host="::1")
    assert str(url) == "https://[::1]/x"
