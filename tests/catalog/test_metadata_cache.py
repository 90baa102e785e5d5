"""The metadata files in memory: what is held, and how much of it."""

import random

import pytest

from catalog.store.metadata_cache import MetadataCache

BYTES_MAX = 100_000


def _file(seed: int, size: int = 5_000) -> bytes:
    return random.Random(seed).randbytes(size)  # noise, which packing makes no smaller


@pytest.fixture
def cache() -> MetadataCache:
    return MetadataCache(BYTES_MAX)


def test_files_come_back_as_they_were_and_the_least_recently_used_leave(cache: MetadataCache) -> None:
    for number in range(19):
        cache.put(f"file:///{number}", _file(number))
    assert all(cache.get(f"file:///{number}") == _file(number) for number in range(19))
    cache.get("file:///0")
    cache.put("file:///19", _file(19))
    assert cache.get("file:///1") is None
    assert cache.get("file:///0") == _file(0)


def test_what_is_replaced_or_forgotten_makes_room(cache: MetadataCache) -> None:
    cache.put("file:///kept", _file(0))
    for number in range(100):
        cache.put("file:///same", _file(number))
        cache.put("file:///gone", _file(number))
        cache.forget(["file:///gone", "file:///never there"])
    assert cache.get("file:///kept") == _file(0)
    assert cache.get("file:///gone") is None


def test_a_file_too_large_pushes_nobody_out(cache: MetadataCache) -> None:
    cache.put("file:///kept", _file(0))
    cache.put("file:///large", _file(1, BYTES_MAX // 4))
    assert cache.get("file:///large") is None
    assert cache.get("file:///kept") == _file(0)
