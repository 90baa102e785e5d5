"""Text from outside on the pages: of records, of names, of services. Everything that Streamlit may take for
Markdown goes through here.

Streamlit renders Markdown in texts, alerts, labels of widgets, help and tabs: an image in a stream's name
would have the browser fetch it.
"""

import re
import unicodedata

_SPECIAL = frozenset(r"\`*_{}[]()#+-.!|<>~$:&=^@")
_BLANK = re.compile(r"[\r\n\t\v\f\x1c-\x1e\x85\u2028\u2029]+")
# Turned into links wherever they stand in a text, escaped or not; only code is left alone.
_LINK_LIKE = re.compile(r"https?:|www\.|@|xmpp:|mailto:", re.IGNORECASE)
_BACKTICKS = re.compile("`+")
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"})
_ISOLATE, _END_OF_ISOLATE = "\u2068", "\u2069"
_CONTROLS = re.compile("[\u202a-\u202e\u2066-\u2069]")


def plain(text: object) -> str:
    """Text as Markdown that shows it as it is, on one line; right-to-left text moves nothing around it."""
    shown = isolated(_BLANK.sub(" ", str(text)))
    if _LINK_LIKE.search(shown):
        return code(shown)
    return "".join(f"\\{character}" if character in _SPECIAL else character for character in shown)


def sentence(text: object) -> str:
    """A service's sentence as Markdown: what stands in pairs of backticks is code, all else as `plain` has
    it."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:  # a backtick without another
        return plain(text)
    return "".join(code(part) if at % 2 else plain(part) for at, part in enumerate(parts))


def code(text: object) -> str:
    """Text as code inside Markdown, whatever backticks it holds."""
    shown = isolated(_BLANK.sub(" ", str(text))) or " "
    fence = "`" * (max((len(run) for run in _BACKTICKS.findall(shown)), default=0) + 1)
    return f"{fence} {shown} {fence}" if shown.strip() else f"{fence}{shown}{fence}"


def isolated(text: str) -> str:
    """Text whose direction ends with it: controls of direction are spelled out, right-to-left characters are
    kept to themselves."""
    if text.isascii():  # has neither, and nearly all text is
        return text
    spelled = _CONTROLS.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)
    return (
        f"{_ISOLATE}{spelled}{_END_OF_ISOLATE}"
        if any(unicodedata.bidirectional(each) in _RIGHT_TO_LEFT for each in spelled)
        else spelled
    )
