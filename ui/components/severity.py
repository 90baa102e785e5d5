"""Severities as records spell them, in the levels and colours of the pages."""

LEVELS = {
    "fatal": "fatal critical crit emerg emergency panic alert f 0 1 2",
    "error": "error err severe failure e 3",
    "warn": "warn warning w 4",
    "info": "info information informational notice i 5 6",
    "debug": "debug trace verbose fine finer finest d t 7",
}
OTHER = "other"
# Told from each other, and from the page, in both themes. Only areas are drawn in them, never letters.
COLOURS = {
    "fatal": "#a1447c",
    "error": "#c2533f",
    "warn": "#d8a343",
    "info": "#5a8fb5",
    "debug": "#8296a4",
    OTHER: "#a9b6c0",
}
_LEVEL_OF = {spelled: level for level, spellings in LEVELS.items() for spelled in spellings.split()}


def level_of(severity: str | None) -> str:
    """The level of a severity, as the histogram counts it (`lake/severity.py`; a test compares both): blanks,
    quotes and case do not matter."""
    spelled = (severity or "").replace(" ", "").replace('"', "")
    return _LEVEL_OF.get("".join(character.lower()[:1] for character in spelled), OTHER)
