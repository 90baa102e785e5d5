"""Makes the block of a data file from its rows, a row group at a time, before the file is written.

The tokens of every text column go into the filter of the row group, but those of `_topic` and `_topic_id`,
which no word without a field searches. Of columns with few tokens these go in once more as tokens of their
field, so that `status:500` does not find every row group in which some number is 500, and a word is looked
for in those columns alone that may have it. A column with many tokens (a message, ids that are all distinct)
does without: there a token that the row group has is most likely the column's own. Of ids and numbers their
characters tell which words are not in them (`alphabet`).

What a hostile text can make of it is bounded: a row group with more tokens than KEYS_MAX, or with a value
that is too long, has no filter, so any word may be in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.log_schema import ERRORS, SEVERITY, TIMESTAMP, TOPIC, TOPIC_ID
from lake.token_filter.alphabet import ALPHABETS_MAX, Alphabet
from lake.token_filter.block import BLOCK_BYTES_MAX, GroupFilter, TokenFilter, encode
from lake.token_filter.bloom import BLOCK_BYTES, Blocks, build
from lake.token_filter.column_tokens import KEYS_MAX, ColumnReading, TooManyTokensError
from lake.token_filter.minute_counts import MinuteCounts, added, count
from lake.token_filter.tokens import Hashes, ValueTooLongError, distinct, in_field

# What a column may add as tokens of its field to one row group; and all of them together, as a share of the
# tokens that are there anyway, or of the rows.
FIELD_KEYS_MAX = 8_192
FIELDS_SHARE, FIELDS_SHARE_OF_ROWS = 1 / 4, 1 / 16
# Rows of a row group where the writer has no number of its own, and those beyond which Arrow's writer cuts
# one in two whatever it is told.
GROUP_ROWS, GROUP_ROWS_MAX = 131_072, 1 << 20
# Room for the header and the counts of a file.
_FILTERS_BYTES_MAX = BLOCK_BYTES_MAX - (8 << 20)
_FIELD_ID = b"PARQUET:field_id"
_WITHOUT_WORDS = frozenset((TOPIC, TOPIC_ID, ERRORS))
_NO_FILTER: Blocks = np.zeros((0, 8), np.uint32)
_NO_TOKENS: Hashes = np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True)
class _TextColumn:
    """A column in which text is looked for; `parts` are its texts in one row group."""

    id: int
    has_words: bool
    parts: Sequence[pa.Array]


@dataclass(frozen=True, slots=True)
class _Group:
    """What is known of one row group. `words` None: it has no filter. `fields`: by column its tokens; None
    where there are many. `alphabets`: by column its characters; None where these are many."""

    rows: int
    first_us: int
    last_us: int
    words: Hashes | None
    fields: dict[int, Hashes | None]
    alphabets: Mapping[int, Alphabet | None]


@dataclass(slots=True)
class _Tokens:
    """The distinct tokens of several columns, as they come. Adding raises TooManyTokensError."""

    _parts: list[Hashes] = field(default_factory=list)
    _held: int = 0

    def add(self, hashes: Hashes) -> None:
        self._parts.append(hashes)
        self._held += len(hashes)
        if self._held > 2 * KEYS_MAX:
            self._parts = [self.all()]
            self._held = len(self._parts[0])

    def all(self) -> Hashes:
        """All of them, in order. Raises TooManyTokensError."""
        hashes = distinct(np.concatenate([_NO_TOKENS, *self._parts]))
        if len(hashes) > KEYS_MAX:
            raise TooManyTokensError
        return hashes


@dataclass(slots=True)
class FilterBuilder:
    """The block of one file. Rows come with the field ids of their columns, as Parquet keeps them, and always
    with the same columns."""

    _groups: list[_Group] = field(default_factory=list)
    _counts: list[MinuteCounts] = field(default_factory=list)
    _words: frozenset[int] = frozenset()
    _is_usable: bool = True

    def add(self, rows: pa.Table) -> None:
        """Takes the rows of the next row group."""
        times = _times(rows)
        columns = _text_columns(rows)
        if times is None or columns is None:
            self._is_usable = False
            return
        bounds = pc.min_max(times).as_py()
        self._words = frozenset(column.id for column in columns if column.has_words)
        words, fields, alphabets = _tokens_of(columns)
        self._groups.append(_Group(rows.num_rows, bounds["min"], bounds["max"], words, fields, alphabets))
        self._counts.append(count(times, rows.column(SEVERITY) if SEVERITY in rows.column_names else None))

    def block(self) -> bytes:
        """The block; empty where nothing can be said of the file: a column has no field id, or the times of
        its rows are not known."""
        if not self._is_usable or not self._groups:
            return b""
        chosen = _chosen_fields(self._groups, self._words)
        filters = _within_limit([_filter_of(group, chosen) for group in self._groups])
        alphabets = _alphabets_of(self._groups)
        return encode(TokenFilter(tuple(filters), self._words, chosen, added(self._counts), alphabets))


def file_block(rows: pa.Table, group_rows: int) -> bytes:
    """The block of a file of these rows, written in row groups of so many."""
    builder = FilterBuilder()
    for at in range(0, rows.num_rows, group_rows):
        builder.add(rows.slice(at, group_rows))
    return builder.block()


def filtered_columns(schema: pa.Schema) -> list[str]:
    """The columns of a file that its block is about."""
    return [each.name for each in schema if each.name in (TIMESTAMP, ERRORS) or _is_text(each.type)]


def _times(rows: pa.Table) -> pa.ChunkedArray | None:
    """The times of rows in µs; None where some are not known."""
    if TIMESTAMP not in rows.column_names or not rows.num_rows:
        return None
    times = rows.column(TIMESTAMP)
    is_known = pa.types.is_timestamp(times.type) and times.type.unit == "us" and not times.null_count
    return times.cast(pa.int64()) if is_known else None


def _text_columns(rows: pa.Table) -> list[_TextColumn] | None:
    """The columns that hold text, with the values that are not NULL; None where a column has no field id."""
    found = []
    for each, column in zip(rows.schema, rows.columns, strict=True):
        column_id = int((each.metadata or {}).get(_FIELD_ID, 0))
        if not column_id:
            return None
        parts = _error_texts(column) if each.name == ERRORS else column.chunks if _is_text(each.type) else []
        if parts:
            has_values = column.null_count < len(column)
            found.append(_TextColumn(column_id, each.name not in _WITHOUT_WORDS, parts if has_values else []))
    return found


def _is_text(kind: pa.DataType) -> bool:
    """Whether Iceberg may call a column of this type a string: some writers do not annotate text as such."""
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    names = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _error_texts(column: pa.ChunkedArray) -> list[pa.Array]:
    """The fields, values and reasons in `_errors`."""
    if not pa.types.is_list(column.type) or not pa.types.is_struct(column.type.value_type):
        return []
    entries = column.combine_chunks().flatten()
    return [part for part in entries.flatten() if _is_text(part.type)]


def _tokens_of(
    columns: Sequence[_TextColumn],
) -> tuple[Hashes | None, dict[int, Hashes | None], dict[int, Alphabet | None]]:
    """The tokens of a row group: those of words, None where they are too many for a filter, and those of each
    field; and the characters of the columns that have words."""
    words, fields, alphabets = _Tokens(), dict[int, Hashes | None](), dict[int, Alphabet | None]()
    try:
        for column in columns:
            few: list[Hashes] | None = [_NO_TOKENS]
            reading = ColumnReading()
            for hashes in (hashes for part in column.parts for hashes in reading.hashes(part)):
                if column.has_words:
                    words.add(hashes)
                few = None if few is None or sum(map(len, few)) > 4 * FIELD_KEYS_MAX else [*few, hashes]
            tokens = None if few is None else distinct(np.concatenate(few))
            fields[column.id] = None if tokens is None or len(tokens) > FIELD_KEYS_MAX else tokens
            if column.has_words:
                alphabets[column.id] = reading.alphabet
        return words.all(), fields, alphabets
    except (TooManyTokensError, ValueTooLongError):
        return None, {}, {}


def _alphabets_of(groups: Sequence[_Group]) -> dict[int, Alphabet]:
    """The characters of columns over all row groups; without a column that has many in one of them."""
    found = dict[int, Alphabet]()
    for column_id in sorted(set[int]().union(*(group.alphabets for group in groups))):
        each = [group.alphabets.get(column_id) for group in groups]
        known = [alphabet for alphabet in each if alphabet is not None]
        if len(known) == len(groups) and len(found) < ALPHABETS_MAX:
            found[column_id] = reduce(or_, known)
    return found


def _chosen_fields(groups: Sequence[_Group], with_words: frozenset[int]) -> frozenset[int]:
    """The columns whose tokens are kept as tokens of their field: those with the fewest, and those whose
    tokens are kept in no other way."""
    with_filter = [group for group in groups if group.words is not None]
    keys = dict[int, int]()
    many = set[int]()
    for group in with_filter:
        for column_id, tokens in group.fields.items():
            if tokens is None:
                many.add(column_id)
            else:
                keys[column_id] = keys.get(column_id, 0) + len(tokens)
    words = sum(len(group.words) for group in with_filter if group.words is not None)
    left = max(FIELDS_SHARE * words, FIELDS_SHARE_OF_ROWS * sum(group.rows for group in with_filter))
    chosen = keys.keys() - many - with_words
    for column_id in sorted(keys.keys() - many - chosen, key=lambda column_id: (keys[column_id], column_id)):
        left -= keys[column_id]
        if left < 0:
            break
        chosen.add(column_id)
    return frozenset(chosen)


def _filter_of(group: _Group, chosen: frozenset[int]) -> GroupFilter:
    if group.words is None:
        return GroupFilter(group.rows, group.first_us, group.last_us, _NO_FILTER)
    in_fields = [
        in_field(tokens, column_id)
        for column_id, tokens in group.fields.items()
        if column_id in chosen and tokens is not None
    ]
    keys = distinct(np.concatenate([group.words, *in_fields]))
    return GroupFilter(group.rows, group.first_us, group.last_us, build(keys))


def _within_limit(filters: Sequence[GroupFilter]) -> list[GroupFilter]:
    """The filters, without the largest ones where all together are more than readers take."""
    kept, left = list(filters), _FILTERS_BYTES_MAX
    for at in sorted(range(len(filters)), key=lambda at: len(filters[at].blocks)):
        left -= len(filters[at].blocks) * BLOCK_BYTES
        if left < 0:
            kept[at] = replace(filters[at], blocks=_NO_FILTER)
    return kept
