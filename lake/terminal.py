"""What people see on a terminal: text of records, names and errors is never an order to the terminal, nor
markup, nor does it turn its neighbours around.

Control characters (C0 but for line ends and tabs, DEL, C1), those that change the direction of writing, and
the separators of lines that are none are spelled as in Python (`\\x1b`, `\\u202e`). JSON stays JSON: there
they are escaped as JSON escapes them.
"""

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_BEYOND_ASCII = f"\x7f-\x9f\u2028\u2029{_DIRECTION}"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f{_BEYOND_ASCII}]")
_UNSAFE_IN_JSON = re.compile(f"[{_BEYOND_ASCII}]")


def visible(text: str) -> str:
    """The text with what a terminal would obey spelled out."""
    return _UNSAFE.sub(lambda found: _spelled(found[0]), text)


def _spelled(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"


def json_text(document: Any) -> str:
    """The document as one line of JSON that says exactly what it is, readable in all languages, and harmless
    on a terminal."""
    return _UNSAFE_IN_JSON.sub(
        lambda found: f"\\u{ord(found[0]):04x}", json.dumps(document, ensure_ascii=False)
    )


def write_csv(rows: Iterable[Sequence[Any]]) -> None:
    """Writes rows to standard output: as they are to a file or another program, visibly to a terminal."""
    if not sys.stdout.isatty():
        csv.writer(sys.stdout).writerows(rows)
        return
    for row in rows:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(row)
        sys.stdout.write(visible(line.getvalue()))


def _visible_text(text: Text) -> Text:
    """The same with its styles."""
    if _UNSAFE.search(text.plain) is None:
        return text
    shown, at = text.blank_copy(), 0
    for found in _UNSAFE.finditer(text.plain):
        shown.append_text(text[at : found.start()]).append(_spelled(found[0]))
        at = found.end()
    return shown.append_text(text[at:])


class TerminalConsole(Console):
    """The one kind of console in Firn: whatever is printed goes out by `visible`, and text is no markup
    unless `markup=True` says that ours is."""

    def __init__(self, *, markup: bool = False, **options: Any) -> None:
        super().__init__(markup=markup, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich lays it out, each text made visible before, since it takes more room then, and every piece
        of what comes out once more."""
        if isinstance(renderable, str):
            chosen = options or self.options
            renderable = self.render_str(renderable, highlight=chosen.highlight, markup=chosen.markup)
        if isinstance(renderable, Text):
            renderable = _visible_text(renderable)
        for segment in super().render(renderable, options):
            yield (
                segment
                if segment.control or segment.text.isprintable()
                else Segment(visible(segment.text), segment.style)
            )
