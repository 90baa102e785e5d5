"""`python -m tests.ingest.support.hostile_json`: inputs that ask the native core for memory, in a process
that gets the stated bound (core/README.md) and no more; an allocation beyond it ends the process."""

import json
import resource
import sys
from collections.abc import Iterator
from itertools import count

from tests.ingest.support.json_comparison import limit_memory, parser

KEYS_BYTES_MAX = 64_000_000
CELLS_BYTES_MAX = 72_000_000
# For each byte of the input: a column's bytes with the room to grow, and as much again while it moves.
TIMES_INPUT = 4
INPUT_BYTES_MAX = 32_000_000
# Python's own: the joined input, routes, lists.
PYTHON_BYTES = 200_000_000


def floods() -> Iterator[list[bytes]]:
    """Records by the thousands, each list for one call."""
    number = count()
    for width in (1, 20, 5_000):  # keys that never come again
        for _ in range(4):
            rows = 40_000 // width
            yield [
                b"{" + b",".join(b'"k%d":%d' % (next(number), at) for at in range(width)) + b"}"
                for _ in range(rows)
            ]
    for _ in range(3):  # as long as keys may be
        yield [
            b'{"%0*d":1,"a":{"%0*d":2}}' % (2_000, next(number), 2_000, next(number)) for _ in range(6_000)
        ]
    yield [b'{"k%d":"x"}' % at for at in range(65_536)]  # as many columns as rows allow, all but empty
    yield [b'{"long":"' + b"x" * 30_000_000 + b'"}', b'{"long":"x"}']
    yield [b'{"k%d":"%s"}' % (at % 1_000, b"y" * 400) for at in range(60_000)]
    yield [b'{"a":' * 4_000_000, b'{"a":' + b"[" * 10_000_000, b"[" * 100]
    yield [b'{"escaped":"' + b"\\u20ac" * 4_000_000 + b'"}']
    yield [b'{"never closed":"' + b"\\n" * 10_000_000]
    yield [b'{"a":1,"a":2}'] * 65_536
    yield [b""] * 65_536


def main() -> None:
    """Feeds them all to one parser, and prints how far its process grew."""
    reader = parser(100)
    reader.parse([b'{"warm":"up"}'])
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limit_memory(KEYS_BYTES_MAX + CELLS_BYTES_MAX + TIMES_INPUT * INPUT_BYTES_MAX + PYTHON_BYTES)
    records = 0
    for values in floods():
        assert sum(map(len, values)) <= INPUT_BYTES_MAX, values[0][:40]
        parsed = reader.parse(values)
        assert len(parsed.plain) + len(parsed.odd) == len(values)
        records += len(values)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    sys.stdout.write(json.dumps({"records": records, "grown_mb": grown_kb // 1_000}) + "\n")


if __name__ == "__main__":
    main()
