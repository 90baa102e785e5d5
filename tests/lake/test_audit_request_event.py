"""A request as events of the audit trail, the same from every service."""

from starlette.requests import Request

from lake.audit.request_event import Asker, beginning, ending, request_fields


def _request() -> Request:
    headers = [(b"user-agent", b"curl/8"), (b"x-forwarded-for", b"203.0.113.9, 10.0.0.1")]
    return Request(
        {
            "type": "http",
            "method": "DELETE",
            "path": "/v1/streams",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 4),
            "server": ("localhost", 80),
            "scheme": "http",
        }
    )


def _fields() -> dict[str, str | int | None]:
    return request_fields(
        _request(),
        "stream.delete",
        room="query",
        category="configuration",
        asker=Asker("0123456789ab"),
        parameters={"stream": "logs", "all": True},
    )


def test_a_request_says_who_asks_from_where_and_how() -> None:
    """Names are ECS's; parameters are JSON with their names in order."""
    assert _fields() == {
        "event.action": "stream.delete",
        "event.provider": "query",
        "event.category": "configuration",
        "user.id": "0123456789ab",
        "user.name": "",
        "user.domain": "",
        "user.roles": "",
        "firn.key_namespace": None,
        "source.ip": "127.0.0.1",
        "network.forwarded_ip": "203.0.113.9, 10.0.0.1",
        "user_agent.original": "curl/8",
        "http.request.method": "DELETE",
        "url.path": "/v1/streams",
        "firn.parameters": '{"all":true,"stream":"logs"}',
    }


def test_an_end_has_all_that_the_beginning_had() -> None:
    """And what became of it: refused from 400 on, the reason cut to a bearable length."""
    begins = beginning(_fields())
    assert begins == _fields() | {"event.type": "start", "event.outcome": "unknown"}
    about = {**_fields(), "organization.name": "acme", "firn.stream": "logs"}
    done = ending(about, kind="end", status=399, reason=None, took_s=0.25)
    assert done == about | {
        "event.type": "end",
        "event.outcome": "success",
        "event.reason": None,
        "event.duration": 250_000_000,
        "http.response.status_code": 399,
        "message": "stream.delete acme/logs by 0123456789ab: success",
    }
    refused = ending(_fields(), kind="access", status=400, reason="x" * 5_000, took_s=0.0)
    assert (refused["event.outcome"], refused["event.type"]) == ("failure", "access")
    assert refused["event.reason"] == "x" * 1_000
    assert refused["message"] == "stream.delete by 0123456789ab: failure"


def test_a_person_is_named_beside_the_id() -> None:
    """The id stays what it is; the name, which may change, is for people who read."""
    asker = Asker("https://id.example.org#7", "acme", "ann", "https://id.example.org", "operator:acme")
    told = request_fields(
        _request(), "hold.set", room="catalog", category="configuration", asker=asker, parameters={}
    )
    assert (told["user.id"], told["user.name"]) == ("https://id.example.org#7", "ann")
    assert (told["user.domain"], told["user.roles"]) == ("https://id.example.org", "operator:acme")
    ended = ending(told, kind="end", status=200, reason=None, took_s=0.1)
    assert ended["message"] == "hold.set by ann (https://id.example.org#7): success"
