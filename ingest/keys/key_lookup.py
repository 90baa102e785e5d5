"""Where keys are: the rows that hold them now, in many data files.

Each file's index is searched for all keys at once, in the order of their hashes, and then lets its memory go:
what a look-up holds is one file's pages and the rows found. Bounds of the hashes would skip nothing, since
hashes are spread evenly over every file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from ingest.keys.column_reader import ColumnReader
from ingest.keys.key_columns import no_key_column
from ingest.keys.key_hash import KeyHashes, plain
from ingest.keys.key_index_store import KeyedFile, KeyIndexStore
from lake.storage import canonical

DeletedPositions = Mapping[str, BitMap64]


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """`m` rows, as three arrays of `m` numbers: which of the keys asked for, which of the data files, and the
    row's number in its file. In the order of the files."""

    key: NDArray[np.int64]
    file: NDArray[np.int64]
    position: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.key)

    def taken(self, at: NDArray[np.integer] | NDArray[np.bool_]) -> "KeyRows":
        """Those rows at these places."""
        return KeyRows(self.key[at], self.file[at], self.position[at])


def find_live_rows(
    store: KeyIndexStore, keys: KeyHashes, files: Sequence[KeyedFile], deleted: DeletedPositions
) -> KeyRows:
    """Finds every row of the files that holds one of the keys and is not deleted. `deleted` has the deleted
    row numbers of data files by URI.

    A key that no row holds is not in the answer; one that several rows hold is there for each. Raises what
    `KeyIndexStore.index_of` does.
    """
    order = np.argsort(keys.high, kind="stable")
    in_order = keys.taken(order)
    gone = _by_canonical_uri(deleted)
    found = [_none()]
    for at, file in enumerate(files):
        index = store.index_of(file)
        places, rows = index.find(in_order)
        index.let_go()
        positions = rows.astype(np.int64)
        live = _live(positions, gone.get(canonical(file.uri)))
        found.append(KeyRows(order[places], np.full(len(places), at, np.int64), positions).taken(live))
    return _joined(found)


def verified_rows(
    reader: ColumnReader,
    found: KeyRows,
    keys: Sequence[pa.Array | pa.ChunkedArray],
    files: Sequence[KeyedFile],
) -> KeyRows:
    """Keeps of the found rows those whose key in the data file equals the one asked for, value by value;
    `keys` are the key's columns that were hashed. What is missing in the answer only had an equal hash.

    Reads the key's columns of the row groups that hold a found row. Raises NotFoundError, UnavailableError,
    ProtocolError.
    """
    kept = [_none()]
    for at in np.unique(found.file):
        of_file = found.taken(found.file == at)
        kept.extend(_equal_rows(reader, of_file, keys, files[int(at)]))
    return _joined(kept)


def _equal_rows(
    reader: ColumnReader, found: KeyRows, keys: Sequence[pa.Array | pa.ChunkedArray], file: KeyedFile
) -> Iterable[KeyRows]:
    for group, places, at in reader.groups(file.uri, found.position):
        rows = found.taken(places)
        columns = reader.of_group(file.uri, group, file.key_ids)
        for key_id, column in zip(file.key_ids, columns, strict=True):
            if column is None:
                raise no_key_column(file.uri, key_id)
        in_file = [plain(column.take(at)) for column in columns if column is not None]
        yield rows.taken(_equal(in_file, _taken(keys, rows.key)))


def _taken(columns: Sequence[pa.Array | pa.ChunkedArray], at: NDArray[np.int64]) -> list[pa.Array]:
    taken = [column.take(pa.array(at)) for column in columns]
    return [plain(_as_one(column)) for column in taken]


def _as_one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _equal(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> NDArray[np.bool_]:
    """Which rows are equal in all columns; NULL equals NULL. Types may differ by a widening."""
    equal = np.ones(len(left[0]), np.bool_)
    for one, other in zip(left, right, strict=True):
        both_null = pc.and_(one.is_null(), other.is_null())
        equal &= np.asarray(pc.fill_null(pc.equal(one, other), both_null))
    return equal


def _live(positions: NDArray[np.int64], deleted: BitMap64 | None) -> NDArray[np.bool_]:
    # Few rows are asked about, and many may be deleted: the bitmap is asked, not unpacked.
    dead = BitMap64() if deleted is None else BitMap64(positions.tolist()) & deleted
    if not dead:
        return np.ones(len(positions), np.bool_)
    return np.isin(positions, np.array(dead.to_array(), np.int64), invert=True)


def _by_canonical_uri(deleted: DeletedPositions) -> dict[str, BitMap64]:
    # Engines spell one file in several ways: none of its deletes may be missed.
    found: dict[str, BitMap64] = {}
    for uri, positions in deleted.items():
        name = canonical(uri)
        found[name] = found[name] | positions if name in found else positions
    return found


def _none() -> KeyRows:
    return KeyRows(*(np.empty(0, np.int64) for _ in range(3)))


def _joined(parts: Sequence[KeyRows]) -> KeyRows:
    return KeyRows(
        np.concatenate([part.key for part in parts]),
        np.concatenate([part.file for part in parts]),
        np.concatenate([part.position for part in parts]),
    )
