"""Tables as files that people open in a spreadsheet, which calculates what begins like a formula: texts of
strangers must not."""

import re
from typing import Any

import pandas as pd

_FORMULA_SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_SKIPPED = "\t\r\n \x00\ufeff\xa0'\""
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def text_cell(value: Any) -> Any:
    """A cell that no spreadsheet calculates: texts that begin like a formula get an apostrophe before them
    (OWASP, "CSV Injection")."""
    if (
        not isinstance(value, str)
        or not value.lstrip(_SKIPPED).startswith(_FORMULA_SIGNS)
        or _NUMBER.fullmatch(value)
    ):
        return value
    return f"'{value}"


def to_csv(frame: pd.DataFrame) -> bytes:
    """The file, RFC 4180; names of columns are texts of strangers too. Only what stands in the line's end is
    quoted: both signs have to."""
    return bytes(
        frame.map(text_cell).rename(columns=text_cell).to_csv(index=False, lineterminator="\r\n").encode()
    )
