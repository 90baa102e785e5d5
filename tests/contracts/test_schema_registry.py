"""The contract of schema registries for Apicurio's and for the one in memory that stands for it."""

from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from infra.local.supervisor import Stack
from tests.contracts.support.schema_registry_suite import Register, SchemaRegistryContract
from tests.ingest.support.fake_schema_registry import FakeSchemaRegistry, fake_schema_registry


class TestFakeSchemaRegistry(SchemaRegistryContract):
    """The one in the test's process."""

    @pytest.fixture
    def fake(self) -> Iterator[FakeSchemaRegistry]:
        with fake_schema_registry() as registry:
            yield registry

    @pytest.fixture
    def url(self, fake: FakeSchemaRegistry) -> str:
        return fake.url

    @pytest.fixture
    def register(self, fake: FakeSchemaRegistry) -> Register:
        def register(subject: str, schema: Schema) -> int:
            references = [reference.subject for reference in schema.references or ()]
            return fake.add(schema.schema_str, schema.schema_type, references, subject)

        return register


@pytest.mark.stack
@pytest.mark.prove
class TestApicurio(SchemaRegistryContract):
    """Apicurio's, with its database in memory."""

    @pytest.fixture(scope="class")
    def running(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
        with Stack(tmp_path_factory.mktemp("registry"), tied=True) as stack:
            stack.start("registry")
            yield stack

    @pytest.fixture
    def url(self, running: Stack) -> str:
        return running.address("registry")

    @pytest.fixture
    def register(self, url: str) -> Register:
        client = SchemaRegistryClient({"url": url})

        def register(subject: str, schema: Schema) -> int:
            schema_id: int = client.register_schema(subject, schema)
            return schema_id

        return register
