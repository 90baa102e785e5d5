"""`system.dead_letters` is for administrators: no other key reads a row of it, no producer writes one that it
was not given, and no row says what a record held."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trino

from lake.system_tables import LETTERS_STREAM
from lake.tenant import SYSTEM_TENANT, to_identifier
from tests.query.support.following import Following
from tests.query.support.guarded import Guarded
from tests.security.support.ruled import Ruled
from tests.stack.support.eraser import Eraser
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack
SECRET = "what-only-the-record-holds"
OTHERS = ("mine", "reader", "theirs", "room")
OF = {"tenant": SYSTEM_TENANT.name, "stream": LETTERS_STREAM}
RANGE = {"from": "now-1d", "to": "now+1d"}
SPELLINGS = ("system.dead_letters", '"_73ystem"."dead__letters"', '"system"."dead_letters"')


@pytest.fixture(scope="module")
def topics(line: Line) -> Iterator[list[str]]:
    """The input topic, and the dead-letter topic, whose letters are rows: one of tenant `a`, one of nobody,
    one that wants to be a row, and one that somebody else put into the topic."""
    topic = line.kafka.topic(1)
    keys = {"internal_topics__signing_keys": '["the key of these nodes alone"]'}
    tools = ToolLine(line, topic, internal_topics__dead_letters_table="true", **keys)
    letters = tools.settings["internal_topics__dead_letters"]
    try:
        tools.ingester.start()
        secret = SECRET.encode()
        bodies = [
            (b'{"half": "' + secret, [("tenant", b"a"), ("h", secret)]),
            (b'{"message": "' + secret + b'"}', [("h", secret)]),
            (b'{"message": "' + secret + b'"}', [("tenant", b"system"), ("stream", b"dead_letters")]),
        ]
        line.kafka.produce(topic, [Record(body, secret, headers) for body, headers in bodies])
        tools.wait_until_stored(topic, {0: len(bodies)})
        told = {"reason": SECRET, "topic": SECRET, "topic_id": SECRET, "table": "a.logs"}
        numbers = dict.fromkeys(("timestamp_ms", "partition", "offset"), "1")
        forged = [(f"firn.{name}", text.encode()) for name, text in (told | numbers).items()]
        line.kafka.produce(letters, [Record(secret, secret, forged, partition=0)])
        tools.wait_until_stored(letters, {0: len(bodies) + 1})
        assert tools.ingester.stop() == 0
        yield [topic, letters]
    finally:
        tools.ingester.kill()


def _search(keyed: Guarded, key: str, **more: Any) -> Any:
    return keyed.ask("POST", "/v1/search", key, json={**OF, **RANGE, **more})


def test_administrators_read_it_and_no_record(topics: list[str], keyed: Guarded) -> None:
    """By both engines and in SQL; nothing of it quotes a record, or believes what somebody else wrote."""
    for engine in ("duckdb", "trino"):
        answer = _search(keyed, "admin", engine=engine, query=f'_topic:"{topics[1]}"')
        assert answer.status_code == 200, answer.text
        told = [
            (row["fields"]["reason"], row["fields"].get("tenant"), row["fields"]["record_topic"])
            for row in answer.json()["rows"]
        ]
        assert sorted(told) == [
            ("foreign", None, topics[1]),
            ("tenant_missing", None, topics[0]),
            ("tenant_reserved", None, topics[0]),
            ("undecodable", "a", topics[0]),
        ]
        assert SECRET not in answer.text
    for each in SPELLINGS:
        sql = {"sql": f"SELECT * FROM {each} WHERE _topic = '{topics[1]}'"}
        answer = keyed.ask("POST", "/v1/sql", "admin", json=sql)
        assert len(answer.json()["rows"]) == 4, answer.text
        assert SECRET not in answer.text


@pytest.mark.parametrize("key", OTHERS)
def test_no_other_key_reads_a_row(topics: list[str], keyed: Guarded, key: str, record_property: Any) -> None:
    """Neither the tenant's whose record died, nor a room's."""
    answers = [_search(keyed, key), _search(keyed, key, engine="trino")]
    for each in SPELLINGS:
        body = {"sql": f"SELECT record_topic FROM {each}", "tenant": "b" if key == "theirs" else "a"}
        answers.append(keyed.ask("POST", "/v1/sql", key, json=body))
    record_property("cross_tenant_leaks", sum(topics[0] in answer.text for answer in answers))
    for answer in answers:
        assert answer.status_code in (400, 403, 404), (answer.url, answer.text)
        assert topics[0] not in answer.text


def test_what_is_said_of_a_tenant_is_erased_like_any_row(line: Line, eraser: Eraser, tmp_path: Path) -> None:
    """By an erasure of the tenant `system`; what is said of others stays."""
    following = Following(line, tmp_path, internal_topics__dead_letters_table="true")
    letters = following.ingester.dead_letter_topic
    count = f"SELECT tenant FROM {line.table(*OF.values())} WHERE _topic = '{letters}'"
    try:
        following.ingester.start()
        following.produce(following.tenant, b'{"half":', b'{"half":')
        following.produce(following.other, b'{"half":')
        line.wait_for_dead_letters(following.ingester, 3)
        following.ingester.wait_until(
            lambda: line.exists(*OF.values()) and len(line.sql(count)) == 3, 60.0, "rows of 3 letters"
        )
        body = {"tenant": OF["tenant"], "streams": [OF["stream"]], "query": f'tenant:"{following.tenant}"'}
        job = following.post("erasures", **body)["id"]
        wait_for(lambda: following.get(f"erasures/{job}")["state"] != "running", 120.0, "the erasure")
        assert following.get(f"erasures/{job}")["state"] == "done", following.get(f"erasures/{job}")
        assert line.sql(count) == [(following.other,)]
    finally:
        following.end()


@pytest.mark.prove
def test_a_tenants_user_of_trino_sees_none_of_it(topics: list[str], ruled: Ruled) -> None:
    """Not in a list either."""
    schema, table = to_identifier(SYSTEM_TENANT.name), to_identifier(LETTERS_STREAM)
    statement = f'SELECT count(*) FROM lake."{schema}"."{table}" WHERE _topic = \'{topics[1]}\''
    assert ruled.users.ask("firn", statement) == [[4]]
    assert [schema] not in ruled.users.ask("a", "SHOW SCHEMAS FROM lake")
    for asked in (
        statement,
        f'SHOW TABLES FROM lake."{schema}"',
        f'SELECT * FROM "{schema}"."{table}$files"',
    ):
        with pytest.raises(trino.exceptions.TrinoUserError, match=r"Access Denied|does not exist"):
            ruled.users.ask("a", asked)
