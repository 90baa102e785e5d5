"""What `cut` finds in texts, and puts a label in place of.

All expressions are RE2's, as pyarrow has it: without back-references and looking around, in time that is
linear for each match. An expression of an operator that looks far ahead for each of many matches would still
take long, so that a text beyond `WHOLE_CHARACTERS` is not searched for where such a one matches, but replaced
as a whole.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lake.errors import SettingsError
from lake.settings import MaskRule

Cut = Callable[[Sequence[str]], list[str]]  # texts to texts, one by one
WHOLE_CHARACTERS = 16 * 1024

# ---- cards: ISO/IEC 7812, numbers of 13 to 19 digits that begin with 2 to 6, the last one by Luhn's formula
_DIGITS_MIN, _DIGITS_MAX = 13, 19
_GROUP_DIGITS_MIN = 3  # of a number that is written in groups
_MAY_BE_CARD = r"(?:^|[^0-9.]|(?:^|[^0-9])\.)[0-9](?:[ \-]{0,2}[0-9]){12}"
# Behind the point of a number there are decimals, one in twenty of which would pass for a card.
_RUN = re.compile(r"(?<![0-9])(?<![0-9]\.)[0-9]+(?:[ \-]{1,2}[0-9]+)*", re.ASCII)
_GROUP = re.compile(r"[0-9]+", re.ASCII)

# ---- e-mail addresses; `user=` before one is not taken for a part of it
_LOCAL = r"[^\s\x00-\x20@<>()\[\]{}\"',;:\\/|`?&]"
_EMAIL = rf"([A-Za-z_][A-Za-z0-9_.]*=)?{_LOCAL}+(?:@|%40)(?:[\pL\pN_\-]+\.)+\pL[\pL\pN_\-]*"

# ---- tokens, by how their issuers begin them; those that nothing begins are found by what stands before them
# AWS, GitHub, Slack, Stripe, Google, private keys
_BEGUN = (
    r"(?:A3T[A-Z0-9]|AKIA|ASIA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA|ABIA|ACCA)[A-Z0-9]{16}"
    r"|gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|xox[abeoprs]-[A-Za-z0-9\-]{10,}"
    r"|[prs]k_(?:live|test)_[A-Za-z0-9]{10,}|AIza[A-Za-z0-9_\-]{35}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)-----END [A-Z ]*PRIVATE KEY-----"
)
_TOKENS: Sequence[tuple[str, str]] = (
    (r"eyJ[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]*){0,3}", "[token]"),
    (_BEGUN, "[token]"),
    (r"(?i)(\bbearer[ \t]+)[A-Za-z0-9._~+/\-]{8,}=*", r"\1[token]"),
    (r"(?i)(\bauthorization[\"']?[ \t]*[:=][ \t]*[\"']?[a-z]+[ \t]+)[A-Za-z0-9._~+/=\-]+", r"\1[token]"),
    (r"(?i)(aws_?secret_?(?:access_?)?key[\"']?[ \t]*[:=][ \t]*[\"']?)[A-Za-z0-9/+=]{20,}", r"\1[token]"),
)


def search_of(rules: Iterable[MaskRule]) -> str | None:
    """Returns an expression that matches every text which holds, with whatever around it, one that any of
    these rules would change; None where there is none, since expressions of an operator may ask for what is
    around."""
    found = []
    for rule in rules:
        if rule.expressions:
            return None
        tokens = [expression for expression, _ in _TOKENS]
        of = {"token": tokens, "email": [_EMAIL], "card": [_MAY_BE_CARD]}
        found += [f"(?:{expression})" for name in rule.patterns for expression in of[name]]
    return "|".join(dict.fromkeys(found))


def cuts_of(rule: MaskRule, topic: str) -> list[Cut]:
    """Returns what a rule finds, in the order in which it is looked for. Raises SettingsError where an
    expression is none."""
    own = [
        _own(expression, f"[{rule.name}]", f"topic {topic}, rule {rule.name}")
        for expression in rule.expressions
    ]
    # An e-mail address may hold what looks like a part of a token, and the other way round it is rare.
    return [
        *(cut for name in ("token", "email", "card") if name in rule.patterns for cut in _known(name)),
        *own,
    ]


def _known(name: str) -> list[Cut]:
    if name == "card":
        return [_cut_cards]
    if name == "email":
        return [_replacing(_EMAIL, r"\1[email]")]
    return [_replacing(expression, label) for expression, label in _TOKENS]


def _replacing(expression: str, label: str) -> Cut:
    def replaced(texts: Sequence[str]) -> list[str]:
        cut: list[str] = pc.replace_substring_regex(
            pa.array(texts, pa.string()), expression, label
        ).to_pylist()
        return cut

    return replaced


def _own(expression: str, label: str, where: str) -> Cut:
    try:
        matches_nothing = pc.match_substring_regex(pa.array([""]), expression)[0].as_py()
    except pa.ArrowInvalid as error:
        raise SettingsError(
            f"{where}: {expression!r} is no regular expression of RE2 ({str(error).partition(': ')[2]})"
        ) from error
    if matches_nothing:
        raise SettingsError(f"{where}: {expression!r} matches the empty text; say what has to be there")
    replace = _replacing(expression, label)

    def cut(texts: Sequence[str]) -> list[str]:
        long = [at for at, text in enumerate(texts) if len(text) > WHOLE_CHARACTERS]
        if not long:
            return replace(texts)
        found = replace(["" if len(text) > WHOLE_CHARACTERS else text for text in texts])
        matched = pc.match_substring_regex(pa.array([texts[at] for at in long], pa.string()), expression)
        for at, does in zip(long, matched.to_pylist(), strict=True):
            found[at] = label if does else texts[at]
        return found

    return cut


def _cut_cards(texts: Sequence[str]) -> list[str]:
    may_be = pc.match_substring_regex(pa.array(texts, pa.string()), _MAY_BE_CARD).to_pylist()
    return [_RUN.sub(_without_cards, text) if may else text for text, may in zip(texts, may_be, strict=True)]


def _without_cards(run: re.Match[str]) -> str:
    """Groups of digits, without those that together are the number of a card."""
    text, kept, cut_to = run[0], list[str](), 0
    groups = list(_GROUP.finditer(text))
    at = 0
    while at < len(groups):
        last = max(_ends_of_cards(groups, at), default=None)
        if last is None:
            at += 1
            continue
        kept += [text[cut_to : groups[at].start()], "[card]"]
        cut_to, at = groups[last].end(), last + 1
    return "".join([*kept, text[cut_to:]]) if kept else text


def _ends_of_cards(groups: Sequence[re.Match[str]], first: int) -> Iterator[int]:
    digits = ""
    for at in range(first, len(groups)):
        digits += groups[at][0]
        if len(digits) > _DIGITS_MAX or (at > first and len(groups[at][0]) < _GROUP_DIGITS_MIN):
            return
        if len(digits) >= _DIGITS_MIN and digits[0] in "23456" and _has_check_digit(digits):
            yield at


def _has_check_digit(digits: str) -> bool:
    """Luhn's formula."""
    doubled = (int(digit) * 2 for digit in digits[-2::-2])
    return (
        sum(int(digit) for digit in digits[-1::-2]) + sum(n - 9 if n > 9 else n for n in doubled)
    ) % 10 == 0
