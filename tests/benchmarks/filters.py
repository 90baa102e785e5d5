"""`python -m tests.benchmarks.filters --json`: what the token filters of merged files cost, and how often
they say that a word may be in a row group that does not have it.

Over the demo's six shapes, and over the data sets where FIRN_DATASETS names their folder. The rows of each
are cut into files as ingestion writes them and merged as a Spark task does it, with filters and without, in
turn; CPU seconds of this process, the least of the runs. `merge_cpu_ratio` and the other figures of all
sources are those of their sums.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
import pyarrow as pa
import typer
import zstandard

from infra.demo.draws import Draws
from infra.demo.profiles import EVENT_SHAPES, LINE_SHAPES
from ingest.write.writer import DICTIONARY, fields_of, laid_out, layout_of
from lake.catalog_client import TableName
from lake.data_file import DataFile
from lake.log_schema import LAST_SYSTEM_ID, TIMESTAMP, new_log_schema
from lake.settings import FormatName, StorageSettings
from lake.storage import local_path, open_storage
from lake.table_layout import US_PER_HOUR
from lake.token_filter.block import PARQUET_MAGIC_BYTES, TokenFilter, block_bytes, decode
from lake.token_filter.bloom import may_have
from lake.token_filter.builder import file_block
from lake.token_filter.column_tokens import column_hashes
from lake.token_filter.tokens import Hashes, distinct, in_field
from optimize.compaction import merge_bin, write_file
from optimize.merge_job import Bin, FileLayout, MergeGroup, MergeJob
from tests.benchmarks.kept_results import Keep, keep
from tests.ingest.support.conversion import KAFKA_MS, converted

DATASETS_VARIABLE = "FIRN_DATASETS"
FILES = 12
HOUR_MS = 3_600_000
SHAPES = (*EVENT_SHAPES, *LINE_SHAPES)
# Of each row group, for words of any column; for those of one field as many of each column.
WORDS_ASKED, WORDS_ASKED_OF_FIELD = 5_000, 200


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a source, in order of time, their fields as a schema's JSON has them, and the bytes of the
    messages."""

    table: pa.Table
    fields: Sequence[Mapping[str, Any]]
    raw_bytes: int = 0


def rows_of(bodies: Sequence[bytes], form: FormatName) -> Rows:
    """Messages as ingestion converts them."""
    found = converted(bodies, form)
    names = {name: (LAST_SYSTEM_ID + 1 + at, str(path)) for at, (name, path) in enumerate(found.new.items())}
    fields = fields_of(new_log_schema().with_strings(names, 1), found.rows.column_names)
    table = laid_out(found.rows, layout_of(fields)).sort_by(TIMESTAMP).combine_chunks()
    return Rows(table, fields, sum(map(len, bodies)))


def of_shape(shape: str, count: int, seed: int) -> Rows:
    """So many records of one of the demo's shapes, spread over an hour."""
    draws, start_ms = Draws(f"{seed}/{shape}"), KAFKA_MS - KAFKA_MS % HOUR_MS
    times_ms = [start_ms + at * HOUR_MS // count for at in range(count)]
    if shape in LINE_SHAPES:
        lines = LINE_SHAPES[shape](draws, "bench.example")
        return rows_of([lines.line(at_ms).encode() for at_ms in times_ms], "text")
    events = EVENT_SHAPES[shape](draws, "bench.example")
    return rows_of([orjson.dumps(events.event(at_ms)) for at_ms in times_ms], "auto")


def of_data_set(path: Path) -> Rows:
    """The records of a data set, one a line."""
    lines = zstandard.decompress(path.read_bytes(), max_output_size=1 << 30).splitlines()
    return rows_of(lines, "text" if ".log" in path.suffixes else "auto")


def sources(rows: int, seed: int) -> Iterator[tuple[str, Callable[[], Rows]]]:
    """By name."""
    for shape in SHAPES:
        yield shape, lambda shape=shape: of_shape(shape, rows, seed)  # type: ignore[misc]
    folder = os.environ.get(DATASETS_VARIABLE)
    for path in sorted(Path(folder).glob("*.zst")) if folder else ():
        yield path.name, lambda path=path: of_data_set(path)  # type: ignore[misc]


def small_files(rows: Rows, folder: str) -> list[DataFile]:
    """The rows in files as ingestion writes them: each with some of every minute, quickly compressed."""
    plain = tuple(field["name"] for field in rows.fields if field["name"] not in DICTIONARY)
    layout = FileLayout(zstd_level=1, plain=plain, token_filter=False)
    hour = rows.table.column(TIMESTAMP)[0].value // US_PER_HOUR
    order = np.random.default_rng(1).permutation(rows.table.num_rows)
    files = []
    for at in range(FILES):
        part = rows.table.take(np.sort(order[at::FILES]))
        uri = f"file://{folder}/data/{hour}/{at}.parquet"
        files.append(write_file(open_storage(), uri, hour, part, rows.fields, layout))
    return files


def merged(
    files: Sequence[DataFile], fields: Sequence[Mapping[str, Any]], *, token_filter: bool
) -> tuple[DataFile, float]:
    """The merged file and the CPU seconds that it took."""
    folder = str(local_path(files[0].uri).parents[2])
    job = MergeJob(
        TableName("bench", "logs"),
        f"file://{folder}",
        {"type": "struct", "fields": fields},
        (MergeGroup(files[0].hour or 0, tuple(files)),),
        FileLayout(token_filter=token_filter),
    )
    started_s = time.process_time()
    (result,) = merge_bin(Bin([job], StorageSettings(), KAFKA_MS), open_storage())
    took_s = time.process_time() - started_s
    assert not result.failure, result.failure
    return result.merged[0].outputs[0], took_s


def asked(rows: Rows, found: TokenFilter, draws: random.Random) -> tuple[list[int], list[int]]:
    """Questions and those that were answered wrongly, for words that a row group does not have in any column;
    then the same for one column, with words that it has elsewhere or that other columns have."""
    ids = {field["name"]: int(field["id"]) for field in rows.fields if field["type"] == "string"}
    every = {name: column_hashes(rows.table.column(name)) for name in ids}
    of_file = distinct(np.concatenate(list(every.values())))
    words, fields, first = [0, 0], [0, 0], 0
    for group in found.groups:
        part = rows.table.slice(first, group.rows)
        first += group.rows
        own = {name: column_hashes(part.column(name)) for name in ids}
        here = distinct(np.concatenate([own[name] for name in ids if ids[name] in found.words]))
        strangers = np.array([draws.getrandbits(64) for _ in range(WORDS_ASKED)], np.uint64)
        _ask(group.blocks, _absent(strangers, here), words)
        for name, column_id in ids.items():
            some = np.concatenate([_some(every[name], draws), _some(of_file, draws)])
            if column_id in found.fields | found.words and len(own[name]):
                absent = _absent(some, own[name])
                absent = in_field(absent, column_id) if column_id in found.fields else absent
                _ask(group.blocks, absent, fields)
    return words, fields


def _some(hashes: Hashes, draws: random.Random) -> Hashes:
    places = [draws.randrange(len(hashes)) for _ in range(WORDS_ASKED_OF_FIELD // 2)] if len(hashes) else []
    return hashes[np.array(places, np.int64)]


def _absent(hashes: Hashes, there: Hashes) -> Hashes:
    return np.setdiff1d(hashes, there)


def _ask(blocks: Any, absent: Hashes, tally: list[int]) -> None:
    tally[0] += len(absent)
    tally[1] += int(may_have(blocks, absent).sum())


def measure(rows: Rows, runs: int, draws: random.Random) -> dict[str, float]:
    """What the filter of one source costs and says; plain sums, so that those of several can be added."""
    with tempfile.TemporaryDirectory(prefix="firn-filters-") as folder:
        files = small_files(rows, folder)
        with_s, without_s, build_s = list[float](), list[float](), list[float]()
        for _ in range(runs):
            with_s.append(merged(files, rows.fields, token_filter=True)[1])
            without_s.append(merged(files, rows.fields, token_filter=False)[1])
            started_s = time.process_time()
            file_block(rows.table, FileLayout().row_group_rows)
            build_s.append(time.process_time() - started_s)
        file, _ = merged(files, rows.fields, token_filter=True)
        length = block_bytes(file.split_offsets)
        found = decode(local_path(file.uri).read_bytes()[PARQUET_MAGIC_BYTES : PARQUET_MAGIC_BYTES + length])
    assert found is not None
    words, fields = asked(rows, found, draws)
    return {
        "rows": rows.table.num_rows,
        "columns": rows.table.num_columns,
        "parquet_bytes": file.size_bytes - length,
        "filter_bytes": length,
        "merge_cpu_s": min(without_s),
        "merge_with_filter_cpu_s": min(with_s),
        "build_cpu_s": min(build_s),
        "words_asked": words[0],
        "words_wrong": words[1],
        "field_words_asked": fields[0],
        "field_words_wrong": fields[1],
    }


def figures(sums: Mapping[str, float]) -> dict[str, float]:
    """What is told of them."""
    return {
        "rows": sums["rows"],
        "columns": sums["columns"],
        "bytes_per_row": round(sums["filter_bytes"] / sums["rows"], 2),
        "share_of_parquet": round(sums["filter_bytes"] / sums["parquet_bytes"], 4),
        "build_cpu_s_per_million": round(sums["build_cpu_s"] / sums["rows"] * 1e6, 2),
        "merge_cpu_s_per_million": round(sums["merge_cpu_s"] / sums["rows"] * 1e6, 2),
        "merge_cpu_ratio": round(sums["merge_with_filter_cpu_s"] / sums["merge_cpu_s"], 3),
        "false_positive_rate": round(sums["words_wrong"] / max(1, sums["words_asked"]), 5),
        "false_positive_rate_of_fields": round(
            sums["field_words_wrong"] / max(1, sums["field_words_asked"]), 5
        ),
    }


def main(
    rows: Annotated[int, typer.Option(help="rows of each of the demo's shapes", min=1_000)] = 200_000,
    runs: Annotated[int, typer.Option(help="merges of each kind", min=1)] = 7,
    seed: Annotated[int, typer.Option(help="of everything random")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object as the last line")] = False,
    keeps: Keep = False,
) -> None:
    """Measures every source."""
    pa.set_cpu_count(1)  # as tasks of Spark have it
    measured = dict[str, dict[str, float]]()
    for name, make in sources(rows, seed):
        measured[name] = measure(make(), runs, random.Random(seed))
        typer.echo(f"{name}: {figures(measured[name])}", err=as_json)
    sums = {key: sum(each[key] for each in measured.values()) for key in next(iter(measured.values()))}
    result = {
        **figures(sums),
        "sources": {name: figures(each) for name, each in measured.items()},
        "load_average": os.getloadavg()[0],
    }
    if keeps:
        keep("filters", result)
    typer.echo(orjson.dumps(result).decode() if as_json else f"all: {figures(sums)}")


if __name__ == "__main__":
    typer.run(main)
