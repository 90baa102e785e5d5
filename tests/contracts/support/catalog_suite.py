"""What a catalog's leases, parked records, tasks and tables promise to our client; subclassed once for each
catalog."""

from dataclasses import replace
from uuid import uuid4

import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.commit import creation_request, load_state, new_table_state
from lake.errors import ConflictError, NotFoundError, RefusedError
from lake.extras_client import ExtrasClient, ParkedChange, Task
from lake.storage import open_storage


class CatalogContract:
    """The suite. A subclass gives the fixtures `client` and `root` (a URI below which tables may lie); names
    are fresh in every test."""

    @pytest.fixture
    def extras(self, client: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> ExtrasClient:
        """Its extras, in pages so small that every list has several."""
        get = client.get

        def in_small_pages(path: str, **query: object) -> dict[str, object]:
            return get(path, **{**query, "pageSize": 2})

        monkeypatch.setattr(client, "get", in_small_pages)
        return ExtrasClient(client)

    @pytest.fixture
    def fresh(self) -> str:
        return f"n{uuid4().hex}"

    def test_it_says_what_it_is(self, client: CatalogClient) -> None:
        assert client.has_extras

    def test_a_lease_has_one_holder_and_rising_tokens(self, extras: ExtrasClient, fresh: str) -> None:
        first = extras.acquire_lease(fresh, "one", 60.0)
        assert extras.lease_holder(fresh) == "one"
        with pytest.raises(ConflictError, match="held by one"):
            extras.acquire_lease(fresh, "two", 60.0)
        assert extras.acquire_lease(fresh, "one", 60.0) > first
        with pytest.raises(RefusedError, match="not in force"):
            extras.renew_lease(fresh, first, 60.0)

    def test_a_lease_that_was_released_is_anybodys(self, extras: ExtrasClient, fresh: str) -> None:
        first = extras.acquire_lease(fresh, "one", 60.0)
        extras.renew_lease(fresh, first, 60.0)
        extras.release_lease(fresh, first)
        assert extras.lease_holder(fresh) is None
        with pytest.raises(RefusedError, match="not in force"):
            extras.release_lease(fresh, first)
        assert extras.acquire_lease(fresh, "two", 60.0) > first
        with pytest.raises(RefusedError, match="not in force"):
            extras.renew_lease(f"no{fresh}", 1, 60.0)

    def test_parked_records_are_changed_and_listed(self, extras: ExtrasClient, fresh: str) -> None:
        lease = f"{fresh}:{extras.acquire_lease(fresh, 'one', 60.0)}"
        names = [TableName(fresh, f"t{number}") for number in range(5)]
        changes = [ParkedChange(name, 0, "storage", {"number": at}) for at, name in enumerate(names)]
        assert extras.change_parked(changes, lease=lease, idempotency_key=str(uuid4())) == [1] * len(names)
        listed = [entry for entry in extras.parked() if entry.table.namespace == fresh]
        assert [(entry.table, entry.record["number"]) for entry in listed] == [
            (name, at) for at, name in enumerate(names)
        ]
        again = [ParkedChange(names[0], 0, "storage", {}), ParkedChange(names[1], 1, "storage", None)]
        assert extras.change_parked(again, lease=lease) == [None, 0]
        found = extras.find_parked(names[0])
        assert found is not None
        assert (found.version, found.reason, found.record) == (1, "storage", {"number": 0})
        assert extras.find_parked(names[1]) is None

    def test_parked_records_change_under_a_lease_alone(self, extras: ExtrasClient, fresh: str) -> None:
        token = extras.acquire_lease(fresh, "one", 60.0)
        assert extras.change_parked([], lease=f"{fresh}:{token}") == []
        for stale in (f"{fresh}:{token - 1}", f"no{fresh}:1"):
            with pytest.raises(RefusedError, match="not in force"):
                extras.change_parked([], lease=stale)

    def test_tasks_are_saved_over_the_version_that_was_read(self, extras: ExtrasClient, fresh: str) -> None:
        tasks = [Task(f"{fresh}:{number}", fresh, "done", 0, {"number": number}) for number in range(5)]
        assert extras.save_tasks(tasks) == [1] * len(tasks)
        assert [(task.id, task.version, task.record) for task in extras.tasks(fresh)] == [
            (task.id, 1, task.record) for task in tasks
        ]
        assert extras.save_tasks([tasks[0], replace(tasks[1], version=1, state="failed")]) == [None, 2]
        assert [task.state for task in extras.tasks(fresh)] == ["done", "failed", "done", "done", "done"]
        assert list(extras.tasks(f"no{fresh}")) == []

    def test_a_table_is_there_once_it_is_created(self, client: CatalogClient, root: str, fresh: str) -> None:
        name, storage = TableName(fresh, "logs"), open_storage()
        client.create_namespace(fresh, {})
        assert load_state(client, storage, name) is None
        with pytest.raises(NotFoundError):
            client.load_table(name)
        planned = new_table_state(name, fresh, "logs", root)
        client.create_table(name, creation_request(planned))
        made = load_state(client, storage, name)
        assert made is not None
        assert (made.uuid, made.location, made.head) == (planned.uuid, planned.location, None)
        assert planned.properties.items() - made.properties.items() <= {("format-version", "2")}
        assert fresh in set(client.namespaces())
        with pytest.raises(ConflictError):
            client.create_table(name, creation_request(planned))

    def test_many_tables_are_loaded_as_each_would_be(
        self, client: CatalogClient, root: str, fresh: str
    ) -> None:
        first, missing, second = (TableName(fresh, name) for name in ("first", "missing", "second"))
        client.create_namespace(fresh, {})
        for name in (first, second):
            client.create_table(name, creation_request(new_table_state(name, fresh, name.name, root)))
        found = client.load_tables([second, missing, first], deadline_s=10.0)
        alone = [client.load_table(name)["metadata"] for name in (second, first)]
        assert [each["metadata"] for each in found if isinstance(each, dict)] == alone
        (error,) = (each for each in found if isinstance(each, Exception))
        assert found.index(error) == 1
        with pytest.raises(NotFoundError, match="missing"):
            raise error
