"""Records of JSON for comparing two readers: all that JSON has, spelled in all ways, and much that is none.

Values are drawn from a pool that is renewed now and then, as making one takes longer than a record may.
"""

import random
from collections.abc import Iterator

NUMBERS = [
    "0",
    "-0",
    "1",
    "-1",
    "12",
    "1.50",
    "1E5",
    "1e+5",
    "-1.0e-10",
    "1E400",
    "-0.0",
    "9223372036854775808",
]
CONSTANTS = ["true", "false", "null", "NaN", "Infinity", "-Infinity"]
ODD_SCALARS = [
    "01",
    "1.",
    ".5",
    "-",
    "1e",
    "1e+",
    "+1",
    "0x1",
    "-NaN",
    "-Inf",
    "True",
    "nul",
    "tru",
    "1_0",
    "١",
]
TEXTS = [
    "",
    "a",
    "plain text of a log line, long enough for more than one step",
    "/var/log/messages",
    "é",
    "snow ☃ and 😀",
    "\u2028\u00a0\ufeff",
    "\\n\\t\\r\\b\\f\\/",
    '\\"quoted\\"',
    "C:\\\\Windows\\\\System32",
    "\\u0061\\u00e9\\u20AC",
    "\\ud83d\\ude00",
    "\\u0000",
    '{\\"k\\":[1]}',
    "tab\tand\x01control\x7f",
    "line\nend",
    "x" * 200,
    *("y" * length for length in range(5, 18)),
]
ODD_TEXTS = [
    "\\ud800",
    "\\udc00\\ud800",
    "\\ud83d\\u0041",
    "\\u12",
    "\\x",
    "\\",
    'open"',
    "\\u00g0",
    "\ud800",
]
KEYS = [
    *"abcdef",
    "A",
    "a.b",
    "a_b",
    "é",
    "k" * 40,
    "timestamp",
    "level",
    "x y",
    "",
    "\\u0061",
    "\\u00e9",
    '\\"',
]
ODD_KEYS = ["resourceLogs", "\\ud800", "\\x", "k" * 2_100]
BLANKS = [" ", "\n", "\t ", "\r\n", "  "]
ODD_BLANKS = ["\x0b", "\u00a0", "\ufeff", "\x00", ","]
FRAGMENTS = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"0",
    b"-",
    b" ",
    b"\xff",
    b"\xc3",
    b"\xa9",
    b"\xed\xa0",
]
BEHIND = [b" ", b"\n", b"\r\n\t", b" x", b"{}", b"\x00", b",", "\ufeff".encode()]
POOL = 3_000
RECORDS_OF_A_POOL = 50_000
# So deep that some records are deeper than DEPTH_MAX.
DEPTH_MAX = 6


class Generator:
    """Draws records by a seed. About two in three are plain."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def records(self) -> Iterator[bytes]:
        """Records without end."""
        while True:
            pool = [self._member(0) for _ in range(POOL)]
            log_lines = [self._members_of_a_log() for _ in range(POOL // 10)]
            for _ in range(RECORDS_OF_A_POOL):
                yield self._record(pool, log_lines)

    def _record(self, pool: list[str], log_lines: list[str]) -> bytes:
        draw, choice = self._random.random, self._random.choice
        members = [choice(log_lines)] if draw() < 0.5 else []
        members += [choice(pool) for _ in range(int(draw() * 5))]
        record = ("{" + ",".join(members) + "}").encode("utf-8", "surrogatepass")
        if draw() < 0.1:
            record = self._spoiled(record)
        return record + choice(BEHIND) if draw() < 0.02 else record

    def _spoiled(self, record: bytes) -> bytes:
        place = self._random.randrange(len(record))
        match self._random.randrange(4):
            case 0:
                return record[:place]
            case 1:
                return record[:place] + record[place + 1 :]
            case 2:
                return record[:place] + self._random.choice(FRAGMENTS) + record[place:]
            case _:
                return record[:place] + bytes([self._random.randrange(256)]) + record[place + 1 :]

    def _members_of_a_log(self) -> str:
        """Members as they are usual, under keys of their own."""
        value, number = self._random.choice(TEXTS), self._random.randrange(10**9)
        return (
            f'"ts":"2026-11-25T00:00:00.{number}Z","host":{{"name":"h{number % 7}","ip":["::1", "::2"]}},'
            f'"n":{number},"msg":"{value}"{self._blank()},"user":null,"tags":{{}},"took":{number / 1000}'
        )

    def _member(self, level: int) -> str:
        keys = ODD_KEYS if self._random.random() < 0.01 else KEYS
        key = self._random.choice(keys)
        return f'{self._blank()}"{key}"{self._blank()}:{self._blank()}{self._value(level)}{self._blank()}'

    def _value(self, level: int) -> str:
        draw = self._random.random()
        if draw < 0.4:
            return '"' + self._random.choice(ODD_TEXTS if self._random.random() < 0.03 else TEXTS) + '"'
        if draw < 0.7:
            return self._scalar()
        count = self._random.randrange(4)
        if draw < 0.85:
            return "{" + self._blank() + ",".join(self._member(level + 1) for _ in range(count)) + "}"
        return "[" + self._blank() + ",".join(self._item(level + 1) for _ in range(count)) + "]"

    def _item(self, level: int) -> str:
        return f"{self._blank()}{self._value(level)}{self._blank()}"

    def _scalar(self) -> str:
        draw = self._random.random()
        if draw < 0.6:
            return str(self._random.randrange(-999, 99_999))
        return self._random.choice(ODD_SCALARS if draw < 0.61 else [*NUMBERS, *CONSTANTS])

    def _blank(self) -> str:
        draw = self._random.random()
        if draw < 0.9:
            return ""
        return self._random.choice(ODD_BLANKS if draw < 0.9005 else BLANKS)
