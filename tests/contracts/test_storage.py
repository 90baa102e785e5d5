"""The storage contract on local files and on S3, and what is particular to each."""

import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from infra.local.supervisor import Stack
from infra.production import storage as storage_check
from infra.production.finding import Verdict
from infra.production.rooms import Rooms
from lake import storage as storage_module
from lake.errors import PrerequisiteError, SettingsError, UnavailableError
from lake.settings import StorageSettings
from lake.storage import AnyStorage, canonical, local_path
from tests.contracts.support.storage_suite import StorageContract


class TestLocalFiles(StorageContract):
    """Files of this machine."""

    @pytest.fixture
    def storage(self) -> AnyStorage:
        return AnyStorage(StorageSettings())

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/warehouse"

    def test_file_can_be_read_by_other_users(self, storage: AnyStorage, root: str) -> None:
        """Trino often runs as another user: files get the rights that the umask leaves."""
        storage.write(f"{root}/x", b"1")
        umask = os.umask(0)
        os.umask(umask)
        assert local_path(f"{root}/x").stat().st_mode & 0o777 == 0o666 & ~umask

    def test_every_spelling_names_the_same_file(self, storage: AnyStorage, root: str) -> None:
        """What one engine wrote as `file:/x` another reads as `file:///x`."""
        path = local_path(root)
        storage.write(f"file:{path}/x", b"1")
        assert (
            storage.read(f"file:///{path}/x".replace("////", "///"))
            == storage.read(f"{path}/x")
            == storage.read(f"file://localhost{path}/x")
            == b"1"
        )

    @pytest.mark.parametrize("files", [1, storage_module.SYNCFS_FROM_FILES + 1])
    def test_few_and_many_files_are_synced(self, storage: AnyStorage, root: str, files: int) -> None:
        """Both ways of making files durable pass, one by one and the whole disk at once."""
        uris = [f"{root}/{n}/x" for n in range(files)]
        for uri in uris:
            storage.write(uri, b"x")
        storage.sync(uris)

    @pytest.mark.parametrize("files", [1, storage_module.SYNCFS_FROM_FILES])
    def test_new_folders_are_synced_with_the_files_in_them(
        self, storage: AnyStorage, root: str, files: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every folder that holds a new one, once; those of files that are not asked for wait for theirs."""
        synced = list[str]()
        monkeypatch.setattr(storage_module, "_fsync", synced.append)
        monkeypatch.setattr(storage_module, "_syncfs", synced.append)
        uris, root_path = [f"{root}/t/{n}/x" for n in range(files)], str(local_path(root))
        for uri in [*uris, f"{root}/other/x"]:
            storage.write(uri, b"x")
        assert synced == []
        storage.sync(uris)
        if files == 1:
            folders = [f"{root_path}/t/0", f"{root_path}/t", root_path, str(local_path(root).parent)]
            assert sorted(synced) == sorted([f"{root_path}/t/0/x", *folders])
        else:
            assert len(synced) == 1
        synced.clear()
        storage.sync(uris[:1])
        assert sorted(synced) == [f"{root_path}/t/0", f"{root_path}/t/0/x"]

    def test_folder_made_while_another_is_synced_is_not_forgotten(
        self, storage: AnyStorage, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A thread writes to a new folder between the sync of the folder above and its end."""
        folder = str(local_path(root))
        storage.write(f"{root}/a/x", b"1")

        def sync(path: str) -> None:
            if path == folder and not local_path(f"{root}/b").exists():
                storage.write(f"{root}/b/x", b"1")

        monkeypatch.setattr(storage_module, "_fsync", sync)
        storage.sync([f"{root}/a/x"])
        synced = list[str]()
        monkeypatch.setattr(storage_module, "_fsync", synced.append)
        storage.sync([f"{root}/b/x"])
        assert folder in synced

    def test_full_disk_is_a_prerequisite_that_says_what_to_do(
        self, storage: AnyStorage, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No space left is not a service that is away: somebody has to free space."""

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "rename", full)
        with pytest.raises(PrerequisiteError, match="free space"):
            storage.write(f"{root}/x", b"1")

    def test_a_new_file_that_is_not_finished_is_taken_away(
        self, storage: AnyStorage, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The disk is full in the middle of a file that stands under its name from the start; once there is
        room it is written anew."""
        write, uri = os.write, f"{root}/x"

        def full(descriptor: int, data: memoryview) -> int:
            if len(data) < 10:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(descriptor, data[:4])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(PrerequisiteError, match="free space"):
                storage.write_new(uri, memoryview(b"0123456789"))
        assert list(storage.list(root)) == []
        storage.write_new(uri, b"0123456789")
        assert storage.read(uri) == b"0123456789"

    def test_a_link_under_a_new_name_is_not_followed(self, storage: AnyStorage, root: str) -> None:
        """Whoever put it there: what it points at stays as it is."""
        storage.write(f"{root}/other", b"untouched")
        local_path(f"{root}/x").symlink_to(local_path(f"{root}/other"))
        storage.write_new(f"{root}/x", b"1")
        assert (storage.read(f"{root}/x"), storage.read(f"{root}/other")) == (b"1", b"untouched")

    def test_other_trouble_of_the_disk_is_passing(self, storage: AnyStorage, root: str) -> None:
        """A folder where a file should be is told with its path."""
        storage.write(f"{root}/x/y", b"1")
        with pytest.raises(UnavailableError, match="x"):
            storage.read(f"{root}/x")


@pytest.mark.stack
class TestS3(StorageContract):
    """Objects of an S3-compatible store (s3proxy)."""

    @pytest.fixture(scope="class")
    def endpoint(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
        with Stack(tmp_path_factory.mktemp("s3"), warehouse="s3://firn-warehouse/tables", tied=True) as stack:
            stack.start("s3")
            yield stack.environment()

    @pytest.fixture
    def storage(self, endpoint: dict[str, str]) -> AnyStorage:
        return self._open(endpoint, endpoint["FIRN_STORAGE_S3__SECRET_ACCESS_KEY"])

    def _open(self, endpoint: dict[str, str], secret: str) -> AnyStorage:
        return AnyStorage(
            StorageSettings.load(
                s3__endpoint=endpoint["FIRN_STORAGE_S3__ENDPOINT"],
                s3__access_key_id=endpoint["FIRN_STORAGE_S3__ACCESS_KEY_ID"],
                s3__secret_access_key=SecretStr(secret),
                request_timeout_s=20,
            )
        )

    @pytest.fixture
    def root(self) -> str:
        return f"s3://firn-warehouse/{uuid.uuid4().hex}"

    def test_wrong_key_is_told_and_never_taken_for_a_missing_file(
        self, endpoint: dict[str, str], root: str
    ) -> None:
        """A refused request is an error, not an empty warehouse."""
        stranger = AnyStorage(
            StorageSettings.load(
                s3__endpoint=endpoint["FIRN_STORAGE_S3__ENDPOINT"],
                s3__access_key_id="firn",
                s3__secret_access_key=SecretStr("wrong"),
                request_timeout_s=5,
            )
        )
        with pytest.raises(UnavailableError):
            stranger.size(f"{root}/x")
        with pytest.raises(UnavailableError):
            list(stranger.list(root))

    def test_a_bucket_is_tried_by_firn_and_by_a_stranger(
        self, endpoint: dict[str, str], storage: AnyStorage, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`python -m infra doctor --production`: Firn's credentials do all that is needed, and leave nothing;
        a stranger lists nothing. Wrong ones do not do, and each act is named."""
        for name, value in {**endpoint, "FIRN_CONFIG": "", "FIRN_CATALOG_WAREHOUSE": root}.items():
            monkeypatch.setenv(name, value)
        own, strangers = storage_check.look(Rooms.load())
        assert (own.verdict, strangers.verdict) == (Verdict.OK, Verdict.OK), (own, strangers)
        assert list(storage.list(root)) == []
        monkeypatch.setenv("FIRN_STORAGE_S3__SECRET_ACCESS_KEY", "of-somebody-else")
        monkeypatch.setenv("FIRN_STORAGE_REQUEST_TIMEOUT_S", "5")
        own, _ = storage_check.look(Rooms.load())
        assert own.verdict is Verdict.UNSAFE
        assert all(f"{act}:" in own.sentence for act in ("write", "read", "list", "delete"))


@pytest.mark.parametrize(
    ("uri", "spelled"),
    [
        ("/a/b", "file:///a/b"),
        ("//a/b", "file:///a/b"),
        ("file:/a/b", "file:///a/b"),
        ("file:///a/b", "file:///a/b"),
        ("file:////a/b", "file:///a/b"),
        ("file://localhost/a", "file:///a"),
        ("s3a://bucket/k", "s3://bucket/k"),
        ("s3n://bucket/k", "s3://bucket/k"),
        ("s3://bucket/k?x#y", "s3://bucket/k?x#y"),
    ],
)
def test_locations_have_one_spelling(uri: str, spelled: str) -> None:
    """Every spelling of one object is one text, and the canonical one stays as it is."""
    assert canonical(uri) == canonical(canonical(uri)) == spelled


@pytest.mark.parametrize("uri", ["", "relative/path", "gs://bucket/x", "C:\\x"])
def test_location_that_nobody_can_open_is_a_settings_error(uri: str) -> None:
    """Unknown schemes are named with what to use instead."""
    with pytest.raises(SettingsError, match="s3://"):
        canonical(uri)
