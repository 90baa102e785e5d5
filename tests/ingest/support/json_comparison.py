"""`python -m tests.ingest.support.json_comparison`: the native core against the exact path, on generated
records, in a process that gets so much more memory and no more.

What the core calls plain has to have the exact path's values, and what it calls odd has to be on the list in
core/README.md.
"""

import json
import re
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ingest.core import library
from ingest.core.json_columns import JsonColumns, Parsed, Route
from ingest.decode.decoder import decode
from ingest.decode.formats.json_object import Pairs, is_text
from ingest.decode.formats.registry import BATCH_ROOTS
from lake.errors import Rejected
from tests.ingest.support.json_records import DEPTH_MAX, Generator

CHUNK = 1_000
ROUTE_BYTES_MAX = 2_048
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)
Values = Mapping[Route, str]


def parser(depth_max: int = DEPTH_MAX) -> JsonColumns:
    """One that knows no key yet."""
    functions = library.load()
    assert not isinstance(functions, library.Absent), functions.reason
    return JsonColumns(functions, depth_max, BATCH_ROOTS)


def check(values: Sequence[bytes], parsed: Parsed, depth_max: int = DEPTH_MAX) -> Counter[str]:
    """Fails where plain records have other values than the exact path gives, or odd ones no reason to be so.
    Returns how many are odd, by reason, and under "plain" how many are not."""
    assert sorted([*parsed.plain.tolist(), *parsed.odd.tolist()]) == list(range(len(values)))
    for place, ours in zip(parsed.plain.tolist(), rows(parsed), strict=True):
        pairs = decode(values[place], "json", depth_max)
        assert isinstance(pairs, Pairs), (values[place], pairs)
        leaves = list(leaves_of(pairs, ()))
        assert ours == dict(leaves), values[place]
        assert len(ours) == len(leaves), values[place]
    odd = Counter({"plain": len(parsed.plain)})
    for place in parsed.odd.tolist():
        reason = reason_of(values[place], depth_max)
        assert reason is not None, values[place]
        odd[reason] += 1
    return odd


def rows(parsed: Parsed) -> list[dict[Route, str]]:
    """The values of the plain records."""
    found: list[dict[Route, str]] = [{} for _ in parsed.plain]
    for route, _, column in parsed.columns:
        places = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist()
        for place, value in zip(places, column.drop_null().to_pylist(), strict=True):
            found[place][route] = value
    return found


def leaves_of(pairs: Pairs, route: Route) -> Iterator[tuple[Route, str]]:
    """The leaves of a record by the exact path, as ingestion flattens them."""
    for key, value in pairs:
        if isinstance(value, Pairs):
            yield from leaves_of(value, (*route, key))
        elif value is not None:
            yield (*route, key), value


def reason_of(value: bytes, depth_max: int) -> str | None:
    """Why a record is odd; None where there is no reason."""
    pairs = decode(value, "json", depth_max)
    if isinstance(pairs, Rejected):
        return f"rejected: {pairs.reason.value}"
    assert isinstance(pairs, Pairs)
    if value[:1] != b"{" or value.rstrip(b" \t\r\n")[-1:] != b"}":
        return "blanks before it, or a byte order mark behind it"
    if any(key in BATCH_ROOTS for key, _ in pairs):
        return "may carry several records"
    if _levels(value.decode()) > depth_max:
        return "too deep where a duplicate key within an array hides it"
    return next(_odd_members(pairs, 0), None)


def _odd_members(pairs: Pairs, route_bytes: int) -> Iterator[str]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        yield "duplicate key"
    for key, value in pairs:
        if not is_text(key) or (isinstance(value, str) and not is_text(value)):
            yield "lone surrogate"
            continue
        here = route_bytes + len(key.encode())
        if here > ROUTE_BYTES_MAX:
            yield "long route"
        if isinstance(value, Pairs):
            yield from _odd_members(value, here)


def _levels(text: str) -> int:
    deepest = level = 0
    for token in _TOKEN.findall(text):
        level += (token in "[{") - (token in "]}")
        deepest = max(deepest, level)
    return deepest


def compare(records: int, seed: int) -> Counter[str]:
    """So many generated records through both. Returns what `check` does, over all."""
    told: Counter[str] = Counter()
    generated, reader = Generator(seed).records(), parser()
    while (left := records - told.total()) > 0:
        values = list(islice(generated, min(left, CHUNK)))
        parsed = reader.parse(values)
        if told["plain"] < 10 * CHUNK:  # takes longer than all the rest
            for column in parsed.columns:
                column.values.validate(full=True)
        told += check(values, parsed)
    return told


def limit_memory(more_bytes: int) -> None:
    """Lets this process have so much more address space than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(
    records: Annotated[int, typer.Option(help="how many")] = 200_000,
    seed: Annotated[int, typer.Option(help="of the generator")] = 1,
    memory_mb: Annotated[int, typer.Option(help="address space beyond that of the start, MB")] = 512,
) -> None:
    """Compares, and prints the figures as JSON."""
    limit_memory(memory_mb * 1_000_000)
    told: dict[str, Any] = dict(compare(records, seed))
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stdout.write(json.dumps({"records": records, "peak_mb": peak_kb // 1_000, "told": told}) + "\n")


if __name__ == "__main__":
    typer.run(main)
