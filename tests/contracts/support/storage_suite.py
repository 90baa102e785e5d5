"""What every storage promises; subclassed once per implementation."""

import os
import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from lake.errors import NotFoundError
from lake.storage import AnyStorage, canonical


class StorageContract:
    """The suite. A subclass gives the fixtures `storage` and `root` (a fresh URI prefix)."""

    def test_written_file_is_read_whole_and_in_part(self, storage: AnyStorage, root: str) -> None:
        """What was written comes back, all of it or a range."""
        uri = f"{root}/a/b.bin"
        data = bytes(range(256)) * 1000
        storage.write(uri, data)
        storage.sync([uri])
        assert storage.read(uri) == data
        assert storage.read_range(uri, 256, 10) == bytes(range(10))
        assert storage.size(uri) == len(data)

    def test_file_is_read_as_a_stream(self, storage: AnyStorage, root: str) -> None:
        """An opened file gives its bytes in order, and from any place after seeking; what it is says the same
        as a listing."""
        uri, data = f"{root}/a/b.bin", os.urandom(3_000_000)
        storage.write(uri, data)
        with storage.open(uri) as file:
            assert file.read(5) == data[:5]
            assert file.read() == data[5:]
            file.seek(2_000_000)
            assert file.read(10) == data[2_000_000:2_000_010]
            file.seek(-3, os.SEEK_END)
            assert (file.read(), file.tell()) == (data[-3:], len(data))
        assert [storage.stat(uri)] == list(storage.list(root))

    def test_etag_changes_with_the_content(self, storage: AnyStorage, root: str) -> None:
        """A file of the same size with other bytes has another etag; one that was not touched keeps it."""
        uri = f"{root}/x"
        storage.write(uri, b"one")
        first = storage.stat(uri)
        assert first == storage.stat(uri)
        storage.write(uri, b"two")
        second = storage.stat(uri)
        assert first is not None
        assert second is not None
        assert first.etag
        assert first.etag != second.etag

    def test_missing_file_is_told_apart(self, storage: AnyStorage, root: str) -> None:
        """Nothing there: an error that says so, and no size."""
        uri = f"{root}/missing"
        assert storage.size(uri) is None
        assert storage.stat(uri) is None
        with pytest.raises(NotFoundError, match="missing"):
            storage.read(uri)
        with pytest.raises(NotFoundError, match="missing"):
            storage.open(uri)
        with pytest.raises(NotFoundError):
            storage.read_range(uri, 0, 1)

    def test_file_replaces_the_one_before(self, storage: AnyStorage, root: str) -> None:
        """A second write of the same name is what is read from then on; empty files are files."""
        uri = f"{root}/x"
        storage.write(uri, b"long before")
        storage.write(uri, b"")
        assert (storage.read(uri), storage.size(uri)) == (b"", 0)

    def test_file_under_a_new_name_is_whole(self, storage: AnyStorage, root: str) -> None:
        """Also in a folder that is not there yet; one that is there is replaced."""
        uri, data = f"{root}/new/folder/x", os.urandom(300_000)
        storage.write_new(uri, memoryview(data))
        assert storage.read(uri) == data
        storage.write_new(uri, b"again")
        storage.sync([uri])
        assert [(o.uri, o.size) for o in storage.list(root)] == [(canonical(uri), 5)]

    def test_file_being_written_is_not_there_and_stays_away_when_writing_fails(
        self, storage: AnyStorage, root: str
    ) -> None:
        """Nobody reads half a file, and a failure leaves nothing behind."""
        uri = f"{root}/streamed"
        with storage.create(uri) as file:
            file.write(b"one")
            assert storage.size(uri) is None
            file.write(b"two")
        assert storage.read(uri) == b"onetwo"
        with pytest.raises(RuntimeError):
            self._fail_half_way(storage, f"{root}/failed")
        assert [o.uri for o in storage.list(root)] == [canonical(uri)]

    def _fail_half_way(self, storage: AnyStorage, uri: str) -> None:
        with storage.create(uri) as file:
            file.write(b"half")
            raise RuntimeError

    def test_listing_shows_every_file_below_and_none_beside(self, storage: AnyStorage, root: str) -> None:
        """The prefix is a directory: `x` does not show `xy/...`; URIs are canonical, sizes and times are
        right."""
        names = ["x/1", "x/deep/er/2", "x/ü ☃.bin", "xy/3", "z"]
        for name in names:
            storage.write(f"{root}/{name}", name.encode())
        found = {o.uri: o for o in storage.list(f"{root}/x")}
        assert set(found) == {f"{canonical(root)}/{name}" for name in names[:3]}
        one = found[f"{canonical(root)}/x/1"]
        assert one.size == 3
        assert abs(one.modified - datetime.now(UTC)) < timedelta(minutes=5)
        assert list(storage.list(f"{root}/nothing")) == []

    def test_deleting_is_idempotent(self, storage: AnyStorage, root: str) -> None:
        """Files that do not exist count as deleted, one of them does not keep the others."""
        uris = [f"{root}/{n}" for n in range(5)]
        storage.write_all([(uri, b"x") for uri in uris[:4]])
        storage.delete([uris[4], *uris[:3]])
        assert [o.uri for o in storage.list(root)] == [canonical(uris[3])]
        storage.delete(uris)
        storage.delete([])
        assert list(storage.list(root)) == []

    def test_many_files_are_written_at_once(self, storage: AnyStorage, root: str) -> None:
        """`write_all` has every file readable when it returns."""
        files = [(f"{root}/{n % 7}/{uuid.uuid4().hex}", str(n).encode()) for n in range(60)]
        storage.write_all(files)
        assert {o.uri for o in storage.list(root)} == {canonical(uri) for uri, _ in files}
        assert [storage.read(uri) for uri, _ in files] == [data for _, data in files]

    def test_threads_share_a_storage(self, storage: AnyStorage, root: str) -> None:
        """Writers in threads do not disturb each other, also in folders that none has made yet."""
        failures: list[BaseException] = []

        def write(n: int) -> None:
            try:
                for at in range(5):
                    storage.write(f"{root}/shared/{at}/{n}", str(n).encode())
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(list(storage.list(f"{root}/shared"))) == 30
