"""How many changes a keyed table has taken, by what became of them: a table property that each commit of
changes sets together with their rows, so that a change counts exactly once."""

from collections import Counter
from collections.abc import Mapping
from itertools import islice

import orjson

CHANGES_PROPERTY = "firn.changes"
# More names, and longer ones, are nobody's counts.
NAMES_MAX, NAME_MAX = 64, 64


def change_counts(properties: Mapping[str, str]) -> dict[str, int]:
    """Changes by what became of them, since the table was created. What is no count is left out: anybody who
    may write to the table may write its properties."""
    try:
        counts = orjson.loads(properties.get(CHANGES_PROPERTY, "{}"))
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(counts, dict):
        return {}
    sound = (
        (name, count)
        for name, count in counts.items()
        if len(name) <= NAME_MAX and type(count) is int and 0 < count < 2**63
    )
    return dict(islice(sound, NAMES_MAX))


def counted_changes(properties: Mapping[str, str], more: Mapping[str, int]) -> dict[str, str]:
    """The property after a commit of more changes."""
    counts = Counter(change_counts(properties))
    counts.update(more)
    told = {name: min(count, 2**63 - 1) for name, count in sorted(counts.items()) if count}
    return {CHANGES_PROPERTY: orjson.dumps(told).decode()}
