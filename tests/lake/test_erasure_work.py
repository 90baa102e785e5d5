"""Requests and answers of erasures as the catalog's work list keeps them."""

import base64
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake import erasure_work
from lake.catalog_client import TableName
from lake.erasure_work import (
    ANSWER_KIND,
    REQUEST_KIND,
    ErasureAnswer,
    ErasureRequest,
    pack_names,
    pack_rows,
    unpack_names,
    unpack_rows,
)
from lake.errors import ProtocolError
from lake.extras_client import Task

REQUEST = ErasureRequest(
    "a1", TableName("acme", "logs"), "uuid", {"file:///w/x.parquet": pack_rows([0, 9])}, 5
)


@given(st.sets(st.integers(0, 100_000)))
def test_places_of_rows_come_back_as_they_went(places: set[int]) -> None:
    """In order, whatever is left out between them."""
    assert unpack_rows(pack_rows(sorted(places))) == sorted(places)


def test_places_take_a_bit_at_most() -> None:
    """A million rows of which every second one goes at random fit into an eighth of a megabyte."""
    draws = random.Random(3)
    packed = pack_rows([at for at in range(1_000_000) if draws.random() < 0.5])
    assert len(packed) < 1_000_000 / 8 * 1.4


def test_requests_and_answers_come_back_as_they_went() -> None:
    """Through the record of a task."""
    assert ErasureRequest.of(REQUEST.to_task()) == REQUEST
    answer = ErasureAnswer(
        "a1", "done", 3, 3, 7, 2, 1, 4, 2**62, ("list.avro",), ("a.parquet", "b.parquet"), 2, None, version=5
    )
    task = answer.to_task()
    assert (task.id, task.kind, task.state, task.version) == (f"{ANSWER_KIND}:a1", ANSWER_KIND, "done", 5)
    assert ErasureAnswer.of(task) == answer


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"table": "acme.logs", "table-uuid": "u", "rows": {}, "grace-ms": 0},
        {"table": {"namespace": ["acme"], "name": "logs"}, "table-uuid": "u", "rows": [], "grace-ms": 0},
        {"table": {"namespace": ["acme"], "name": "logs"}, "table-uuid": "u", "rows": {}, "grace-ms": "x"},
    ],
)
def test_what_is_no_request_is_told(record: dict[str, object]) -> None:
    """Whoever wrote it into the list."""
    with pytest.raises(ProtocolError, match="no request for an erasure"):
        ErasureRequest.of(Task(f"{REQUEST_KIND}:x", REQUEST_KIND, "asked", 1, record))
    with pytest.raises(ProtocolError, match="no answer about an erasure"):
        ErasureAnswer.of(Task(f"{ANSWER_KIND}:x", ANSWER_KIND, "done", 1, {"rows": 1}))


@pytest.mark.parametrize(
    "text", ["no base64", "AAAA", base64.b64encode(zlib.compress(b"x" * 99)[:-8]).decode()]
)
def test_what_cannot_be_unpacked_is_told(text: str) -> None:
    """Also where it is cut off."""
    with pytest.raises(ProtocolError):
        unpack_rows(text)


def test_what_unpacks_to_more_than_a_file_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it takes the memory."""
    monkeypatch.setattr(erasure_work, "ROWS_OF_A_FILE_MAX", 80_000)
    assert unpack_rows(pack_rows([79_999])) == [79_999]
    with pytest.raises(ProtocolError, match="more than 10,000 bytes"):
        unpack_rows(pack_rows([80_000]))


def test_of_very_many_names_the_first_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as fit."""
    names = [f"file:///warehouse/{random.Random(at).getrandbits(128):x}.parquet" for at in range(100)]
    assert unpack_names(pack_names(names)) == names
    assert unpack_names(pack_names([])) == []
    monkeypatch.setattr(erasure_work, "NAMES_BYTES_MAX", 1_500)
    assert unpack_names(pack_names(names)) == names[:50]
