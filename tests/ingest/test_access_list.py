"""What Firn's user needs in Kafka: one list, which the docs show and a verb prints."""

import pytest
from typer.testing import CliRunner

from infra.local.jvm_parts import REPOSITORY
from ingest.cli.program import app
from lake.kafka_access_list import GROUP_SUFFIXES, OF_GROUP, OF_INPUT, OF_OWN, Grant, grants
from lake.settings import IngestSettings, TopicSettings

OWN = ("firn.dead-letters", "firn.replay", "firn.parked")


def test_the_page_for_operators_has_the_list() -> None:
    """Every operation of every kind of resource, and every group."""
    rows = [row for row in (REPOSITORY / "docs/ingest.md").read_text().splitlines() if row.startswith("|")]
    for resource, operations in (("input topic", OF_INPUT), ("`internal_topics.parked`", OF_OWN)):
        assert [row for row in rows if resource in row and _as_text(operations) in row]
    (of_groups,) = [row for row in rows if row.startswith("| groups `kafka.group`")]
    assert f"| {_as_text(OF_GROUP)} |" in of_groups
    assert all(f"`{suffix}`" in of_groups for suffix in GROUP_SUFFIXES if suffix)


def _as_text(operations: tuple[str, ...]) -> str:
    return ", ".join(f"`{operation}`" for operation in operations)


def test_each_resource_is_there_once() -> None:
    """Firn's own topics are no input topics, though replayed messages are read like input."""
    settings = IngestSettings.load(topics=(TopicSettings(name="logs"),), kafka__group="g").with_own_topics()
    assert grants(settings) == [
        Grant("topic", "logs", OF_INPUT),
        *(Grant("topic", name, OF_OWN) for name in OWN),
        *(Grant("group", f"g{suffix}", OF_GROUP) for suffix in GROUP_SUFFIXES),
    ]


def test_a_verb_prints_it_for_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As arguments of kafka-acls.sh, without asking a broker."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    monkeypatch.setenv("FIRN_INGEST_TOPICS", '[{"name": "logs"}]')
    done = CliRunner().invoke(app, ["access-list", "--user", "CN=firn"])
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert len(lines) == 1 + len(OWN) + len(GROUP_SUFFIXES)
    assert lines[0] == (
        "--add --allow-principal User:CN=firn --operation Read --operation Describe --operation "
        "DescribeConfigs --topic logs"
    )


def test_the_topic_of_the_trail_is_written_where_it_is_read() -> None:
    """Where it is an input topic; else nobody writes one."""
    audited, others = (
        grants(IngestSettings(topics=(TopicSettings(name=name),))) for name in ("firn.audit", "logs")
    )
    operations = {each for grant in audited if grant.name == "firn.audit" for each in grant.operations}
    assert operations == {"READ", "WRITE", "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS"}
    assert not any(grant.name == "firn.audit" for grant in others)
