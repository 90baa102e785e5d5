"""Texts grouped to patterns: the words that they share stand, what differs becomes `<*>`.

Words with digits are taken for values from the beginning. What is left is sorted by Drain (He, Zhu, Zheng and
Lyu, "Drain: An Online Log Parsing Approach with Fixed Depth Tree", ICWS 2017), of the library
drain3-improved: by the number of words and the first of them, and then to the most similar pattern so far.

Whoever writes the texts decides how often they are compared, so everything has a bound: words, patterns that
are kept, comparisons. What a bound leaves out is counted.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from drain3.drain import Drain, LogCluster

from query.language.letter_case import word_class
from query.language.search_language import Exists, Match, Span
from query.language.search_text import to_text

VALUE = "<*>"
WORDS_MAX = 60
PATTERNS_KEPT_MAX = 1_000
COMPARED_WORDS_MAX = 20_000_000  # one to two seconds of Python
SEARCHED_WORDS_MAX, SEARCHED_CHARACTERS_MAX = 20, 50
SIMILAR = 0.4
CHECK_EVERY = 500
# Both are linear in a text: the first fails at once but at the beginning of a word.
_WITH_DIGITS = re.compile(r"\b[^\W\d]*\d\w*")
_VALUES = re.compile(r"<\*>(?:[-.:,/]<\*>)+")
_NO_SPAN = Span(0, 0)


@dataclass(slots=True)
class Pattern:
    """A pattern, how many texts it has, and the first of them."""

    text: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Grouped:
    """Patterns, the most frequent first, and what became of the texts that have none: `missing` had no value,
    `forgotten` had one that was seen too seldom to be kept, `uncompared` came after the last comparison.
    `read`: all texts together; `cut`: those of which the end was left out."""

    patterns: Sequence[Pattern]
    read: int
    missing: int
    forgotten: int
    uncompared: int
    cut: int


class _CountedDrain(Drain):
    """Counts the words that are compared."""

    compared_words = 0

    def fast_match(
        self, cluster_ids: Collection[int], tokens: Sequence[str], sim_th: float, include_params: bool
    ) -> LogCluster | None:
        self.compared_words += len(cluster_ids) * len(tokens)
        return super().fast_match(cluster_ids, tokens, sim_th, include_params)


def group(
    texts: Iterable[str | None],
    check: Callable[[], None],
    *,
    characters_max: int,
    kept_max: int = PATTERNS_KEPT_MAX,
    compared_max: int = COMPARED_WORDS_MAX,
) -> Grouped:
    """The patterns of some texts. `check` is called now and then, and raises where the work is to end. What a
    text has beyond `characters_max` is not looked at."""
    drain = _CountedDrain(sim_th=SIMILAR, max_clusters=kept_max, param_str=VALUE)
    # What was grouped before is found without a comparison; a pattern that gave way is looked for anew.
    known, examples = dict[str, int](), dict[int, str]()
    read = missing = uncompared = cut = 0
    for text in texts:
        if read % CHECK_EVERY == 0:
            check()
        read += 1
        if text is None:
            missing += 1
            continue
        cut += len(text) > characters_max
        shape = shape_of(text, characters_max)
        cluster = drain.id_to_cluster[known[shape]] if shape in known else None
        if cluster is not None:
            cluster.size += 1
        elif drain.compared_words >= compared_max:
            uncompared += 1
        else:
            cluster, _ = drain.add_log_message(shape)
            known[shape] = cluster.cluster_id
            examples.setdefault(cluster.cluster_id, text[:characters_max])
    patterns = _patterns((each for each in drain.clusters if each is not None), examples)
    grouped = sum(each.count for each in patterns)
    forgotten = read - missing - uncompared - grouped
    return Grouped(patterns, read, missing, forgotten, uncompared, cut)


def shape_of(text: str, characters_max: int) -> str:
    """A text whose words with digits are values, with single blanks between its words. Of what goes on beyond
    a bound the end is one more value."""
    words = _VALUES.sub(VALUE, _WITH_DIGITS.sub(VALUE, text[:characters_max])).split()
    if len(text) > characters_max:
        words[-1:] = [VALUE]
    return " ".join(words if len(words) <= WORDS_MAX else [*words[:WORDS_MAX], VALUE])


def search_of(pattern: str, field: str) -> str:
    """A search that finds every text of a pattern, by the words that all of them have; empty where there are
    none."""
    words = dict[str, None]()
    for found in _word().finditer(pattern):
        touches = pattern.endswith(VALUE, 0, found.start()) or pattern.startswith(VALUE, found.end())
        if not touches and len(found[0]) <= SEARCHED_CHARACTERS_MAX:
            words[found[0]] = None
    if not words:
        return ""
    named = to_text(Exists(field, _NO_SPAN)).removesuffix("*")
    said = [to_text(Match(None, (word,), False, _NO_SPAN)) for word in list(words)[:SEARCHED_WORDS_MAX]]
    return f"{named}({' '.join(said)})"


@cache
def _word() -> re.Pattern[str]:
    return re.compile(f"[{word_class()}]+")


def _patterns(clusters: Iterable[LogCluster], examples: dict[int, str]) -> list[Pattern]:
    """Patterns as they are in the end, when some have become the same."""
    found = dict[str, Pattern]()
    for cluster in clusters:
        text = cluster.get_template()
        if text in found:
            found[text].count += cluster.size
        else:
            found[text] = Pattern(text, cluster.size, examples[cluster.cluster_id])
    return sorted(found.values(), key=lambda each: (-each.count, each.text))
