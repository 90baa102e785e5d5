"""What `cut` finds in texts."""

import time
from typing import Any

import pytest

from ingest.mask.patterns import WHOLE_CHARACTERS, cuts_of
from lake.errors import SettingsError
from lake.settings import MaskRule

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1g"


def _cut(text: str, **rule: Any) -> str:
    found = [text]
    for cut in cuts_of(MaskRule(name="own", action="cut", **rule), "t"):
        found = cut(found)
    return found[0]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("4111111111111111", "[card]"),
        ("pan=4111-1111-1111-1111;", "pan=[card];"),
        ("paid by 3782 822463 10005, 2 times", "paid by [card], 2 times"),
        ("order 12345 4111 1111 1111 1111 100", "order 12345 [card] 100"),
        ("x4222222222222x", "x[card]x"),
        ("6304000000000000001", "6304000000000000001"),  # its last digit is wrong
        ("took 0.4111111111111111 s", "took 0.4111111111111111 s"),
        ("4111111111111111 took 0.4111111111111111 s", "[card] took 0.4111111111111111 s"),
        ("cost 4111111111111111.25 or .4111111111111111", "cost [card].25 or .[card]"),
        ("4111111111111112", "4111111111111112"),
        ("1700000000000000000", "1700000000000000000"),  # a time in nanoseconds
        ("41111111111111114111111111111111", "41111111111111114111111111111111"),  # 32 digits
    ],
)
def test_cards_are_found_by_their_check_digit(text: str, left: str) -> None:
    """As a whole and in groups, beside other numbers; what only looks like one stays."""
    assert _cut(text, patterns=["card"]) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("mail to Ann.O+x@mail.example.co.uk.", "mail to [email]."),
        ("<é@bücher.example>", "<[email]>"),
        ("user=bob@example.com ok", "user=[email] ok"),
        ("?q=bob%40example.com&x", "?q=[email]&x"),
        ("bounces+bob=example.com@list.example", "[email]"),
        ("npm foo@1.2.3, @here, a@b", "npm foo@1.2.3, @here, a@b"),
    ],
)
def test_mail_addresses_are_found(text: str, left: str) -> None:
    """In any script; what has no domain is none."""
    assert _cut(text, patterns=["email"]) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Bearer abcdef123456==", "Authorization: Bearer [token]"),
        ("authorization=basic dXNlcjpwYXNz", "authorization=basic [token]"),
        (f"got {JWT}, went on", "got [token], went on"),
        ("key AKIAIOSFODNN7EXAMPLE used", "key [token] used"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AWS_SECRET_ACCESS_KEY=[token]"),
        ("ghp_" + "a1" * 18, "[token]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nAb+/\n-----END RSA PRIVATE KEY-----\n", "[token]\n"),
        ("the bearer of bad news", "the bearer of bad news"),
    ],
)
def test_tokens_are_found(text: str, left: str) -> None:
    """By how their issuers begin them, or by what stands before them, which stays."""
    assert _cut(text, patterns=["token"]) == left


def test_own_expressions_are_labelled_by_their_rule() -> None:
    """All that one matches; a long text that has a match is replaced as a whole."""
    assert _cut("DE-1 and DE-22", expressions=["DE-[0-9]+"]) == "[own] and [own]"
    assert _cut("x" * WHOLE_CHARACTERS + "DE-1", expressions=["DE-[0-9]+"]) == "[own]"
    assert _cut("x" * WHOLE_CHARACTERS + "DE-", expressions=["DE-[0-9]+"]) == "x" * WHOLE_CHARACTERS + "DE-"


@pytest.mark.parametrize(
    ("expression", "told"),
    [("(a", "no regular expression"), ("(?<!a)b", "no regular expression"), ("a*", "the empty text")],
)
def test_an_expression_that_cannot_be_used_is_told(expression: str, told: str) -> None:
    """Looking around is none of RE2's, and what matches nothing would be put everywhere."""
    with pytest.raises(SettingsError, match=f"topic t, rule own: .*{told}"):
        _cut("", expressions=[expression])


@pytest.mark.long
@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"patterns": ["card", "email", "token"]}, "4 " * 100_000),
        ({"patterns": ["card", "email", "token"]}, "4111-" * 40_000),
        ({"patterns": ["card", "email", "token"]}, "a" * 200_000),
        ({"patterns": ["card", "email", "token"]}, "@a.b" * 50_000),
        ({"patterns": ["card", "email", "token"]}, "eyJ" * 70_000),
        ({"patterns": ["card", "email", "token"]}, "-----BEGIN PRIVATE KEY-----" * 8_000),
        ({"expressions": ["(a+)+$", "(a|a)*b", "a(.*b)?"]}, "a" * 200_000),
    ],
)
def test_the_time_for_a_long_text_is_bounded(rule: dict[str, Any], text: str) -> None:
    """Whatever the text is; patterns that try again from each place would take hours."""
    began_s = time.process_time()
    _cut(text, **rule)
    assert time.process_time() - began_s < 5
