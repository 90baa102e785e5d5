"""Records that go through pipes come out as they went in."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, field

import pytest

from lake.data_file import DataFile, encoded_as
from lake.marks import Marks, TopicPartition
from lake.pickling import pickled_by_init
from lake.span import Span, Unit


@pickled_by_init
@dataclass(frozen=True, slots=True)
class _Record:
    name: str
    parts: tuple[int, ...] = ()
    more: dict[str, int] = field(default_factory=dict)


def test_a_record_is_what_it_was() -> None:
    """Also its defaults; and nobody can change it."""
    for record in (_Record("a"), _Record("b", (1, 2), {"c": 3})):
        back = pickle.loads(pickle.dumps(record))
        assert back == record
        with pytest.raises(FrozenInstanceError):
            back.name = "z"


def test_what_many_records_share_goes_through_once() -> None:
    """One object for all of them, as before."""
    place = TopicPartition("topic", 1)
    marks = [Marks({place: number}) for number in range(100)]
    back = pickle.loads(pickle.dumps(marks))
    assert back == marks
    assert len({id(key) for each in back for key in each.offsets}) == 1


def test_a_file_keeps_what_it_is_encoded_as() -> None:
    """And one that is not encoded is not."""
    file = DataFile("file:///f", None, 3, 9, lower_bounds={1: b"x"}, span=Span(Unit.DAY, 20_000))
    assert pickle.loads(pickle.dumps(file)) == file
    assert pickle.loads(pickle.dumps(file)).encoded is None
    assert pickle.loads(pickle.dumps(encoded_as(file, b"encoded"))).encoded == b"encoded"
