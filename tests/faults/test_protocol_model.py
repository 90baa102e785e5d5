"""The protocol as a model: no schedule loses or doubles a record, and every rule is needed."""

import os
import random
from dataclasses import replace

import pytest

from tests.faults.protocol_model import random_run, replay, shrink
from tests.faults.protocol_world import RULES, Rules

RUNS = int(os.environ.get("FIRN_MODEL_RUNS", "300"))
# For each rule the seed of a run that breaks without it. `python -m tests.faults.protocol_model --without all` finds new ones when steps have changed.
NOTICED: dict[str, int] = {}


def test_no_schedule_loses_or_doubles_a_record() -> None:
    """Crashes, takeovers, late and lost answers, parking, drops, rollbacks, restored databases: in the end every record is where it belongs, once."""
    first = int(os.environ.get("FIRN_TEST_SEED", random.SystemRandom().randrange(10**9)))
    for seed in range(first, first + RUNS):
        run = random_run(Rules(), seed)
        if run.violation:
            short = replay(Rules(), seed, shrink(Rules(), seed, run.schedule))
            pytest.fail("\n  ".join([f"seed {seed}:", *(line for line in short.trace or () if line), f"VIOLATION: {short.violation}"]))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_needed(rule: str) -> None:
    """Without the rule a known schedule loses or doubles something, and with it the same schedule does not."""
    seed = NOTICED[rule]
    run = random_run(replace(Rules(), **{rule: False}), seed)
    assert run.violation, f"the schedule of seed {seed} does not break without {rule} any more; find another by --without {rule}"
    assert replay(Rules(), seed, run.schedule).violation is None
