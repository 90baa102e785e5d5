"""Files of rules: what is refused, with the place and what to write; and each mode, as the tests of a file
tell it, which are carried out as `python -m query rules test` does."""

from pathlib import Path

import pytest

from lake.errors import RefusedError
from lake.settings import QuerySettings
from query.alerts.rule import Rule
from query.alerts.rule_file import parse_rules, read_rules
from query.alerts.rule_tests import Fault, run_tests
from query.model.problem import BadRequestError

MODES = Path(__file__).parent / "alert_rules.yml"
HEAD = "version: 1\ntenant: acme\nrules:\n"


def of(rule: str, condition: str = "{mode: absence}") -> str:
    """A file of one rule."""
    return f"{HEAD}- {{name: x, condition: {condition}{rule}}}\n"


REFUSED = {
    "version: 2\ntenant: a\nrules: []": "version: Input should be 1",
    "rules: [": "this is no YAML: ",
    "a: &x [1]\nb: *x": "aliases are not taken",
    "version: 1\nversion: 1": "'version' is written twice",
    "- a": "a file of rules has `version`, `tenant` and `rules`",
    of("", "{mode: count}"): "rules[x].condition.count: write either `over` or",
    of("", "{mode: counts, over: 1}"): "rules[x].condition: Input tag 'counts'",
    of("", "{mode: absence, lookback: 1s}"): "`lookback` and `against` lie between 1m and 31d",
    of(", query: 'a AND ('"): "rules[x].query: the query ends too early",
    of(", every: 5x"): "rules[x].every: '5x' is no length",
    of(", every: 10m, window: 5m"): "`window` is shorter than `every`",
    of(", labels: {tenant: b}"): "rules[x].labels: 'tenant' cannot be used",
    of(", labels: {service: b}, group_by: [service]"): "'service' is a label already",
    of(
        ", annotations: {summary: '{{ host }}'}"
    ): "names 'host'; there are value, rule, tenant, stream, start",
    of(", group_by: [a.b, a_b]"): "become the same label",
    f"{HEAD}- {{name: 'a b', condition: {{mode: absence}}}}": "rules[a b].name: String should match",
    f"{of('')}- {{name: x, condition: {{mode: absence}}}}": "two rules are called 'x'",
    f"{of('')}tests: [{{name: t, rule: y, expect: [{{at: 1m}}]}}]": "the test 't' is of a rule 'y'",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_a_rule_is_refused_with_its_place(text: str) -> None:
    """Each fault in a line of its own."""
    with pytest.raises(RefusedError) as refused:
        parse_rules(text, "f.yml")
    assert REFUSED[text] in str(refused.value)
    assert all(line.startswith("f.yml") for line in str(refused.value).splitlines())


def test_a_rule_comes_back_as_it_was_written() -> None:
    """What the catalog keeps is the rule, whatever it leaves out."""
    for rule in read_rules(MODES).rules:
        assert Rule.model_validate(rule.to_json()) == rule


@pytest.mark.long
def test_every_mode_does_what_the_tests_of_a_file_say() -> None:
    """Counts above and below, absence, new values, shares, rates; by groups, late and pending."""
    found = {test.name: faults for test, faults in run_tests(read_rules(MODES), QuerySettings())}
    assert {name: faults for name, faults in found.items() if faults} == {}
    modes = {rule.condition.mode for rule in read_rules(MODES).rules}
    assert modes == {"count", "absence", "new_value", "error_share", "rate"}


@pytest.mark.long
def test_a_test_that_expects_something_else_fails_with_what_there_is() -> None:
    """It names the moment."""
    text = """
version: 1
tenant: acme
rules: [{name: many, condition: {mode: count, over: 1}, window: 1m, group_by: [service]}]
tests:
- name: wrong
  rule: many
  rows: [{at: 10s, repeat: 2, service: a}]
  expect: [{at: 1m, firing: [{service: b}], told: 2}]
"""
    ((_, faults),) = run_tests(parse_rules(text, "f.yml"), QuerySettings())
    assert faults == [
        Fault("wrong", 60, "firing are {'service': 'a'}, and it expects {'service': 'b'}"),
        Fault("wrong", 60, "1 alerts were told, and it expects 2"),
    ]


def test_a_test_of_very_many_windows_is_refused() -> None:
    """A file is somebody's, and its tests run where somebody else starts them."""
    text = f"{of(', every: 1s, window: 1s')}tests: [{{name: t, rule: x, expect: [{{at: 2h}}]}}]"
    with pytest.raises(BadRequestError, match="windows"):
        list(run_tests(parse_rules(text, "f.yml"), QuerySettings()))
