"""The protocol as a model: no schedule loses or doubles a record, and every rule is needed."""

import os
import random
from dataclasses import replace

import pytest

from tests.faults.protocol_model import random_run, replay, shrink
from tests.faults.protocol_world import RULES, Rules

RUNS = int(os.environ.get("FIRN_MODEL_RUNS", "300"))
# For each rule the seed of a run that breaks without it. `python -m tests.faults.protocol_model --without all` finds new ones when steps have changed.
NOTICED = {
    "refuse_live_while_parked": 54861,
    "compare_with_marks": 2,
    "reload_after_conflict": 18,
    "assert_head": 18,
    "find_out_unknown": 6,
    "redo_what_is_ahead": 219,
    "skip_below_marks": 5,
    "name_only_what_is_new": 219,
    "end_is_routed": 5,
    "one_flush_in_flight": 17,
    "dead_letters_first": 471,
    "offsets_wait_for_buffers": 5,
    "offsets_wait_for_flights": 5,
    "offsets_wait_for_acknowledgements": 118,
    "marks_in_the_commit": 2,
    "record_before_parking": 492,
    "parked_at_start": 475,
    "unfinished_first": 19,
    "drained_in_order": 16,
    "everybody_holds": 211,
    "hold_after_acknowledgement": 151,
    "held_records_wait": 37,
    "drain_after_the_hold": 9,
    "record_by_version": 2004,
    "take_up_before_known": 44127,
    "known_under_the_lease": 1172,
    "compare_head": 43,
    "maintenance_repeats_head": 43,
    "keep_rolled_back": 502,
    "reread_from_input": 18,
    "ask_witness": 55,
    "offsets_wait_for_the_lease": 50486,
}
# Random schedules (2,500 to 22,500 for each) have not broken anything yet without these.
NOT_NOTICED = {
    "behind_waits_for_person",
    "parking_has_an_id",
    "release_when_known",
    "numbered_orders",
    "record_under_lease",
    "record_once",
    "look_for_rollback",
    "resolve_in_a_commit",
    "notice_vanished",
}


def test_no_schedule_loses_or_doubles_a_record() -> None:
    """Crashes, takeovers, late and lost answers, parking, drops, rollbacks, restored databases: in the end every record is where it belongs, once."""
    first = int(os.environ.get("FIRN_TEST_SEED", random.SystemRandom().randrange(10**9)))
    for seed in range(first, first + RUNS):
        run = random_run(Rules(), seed)
        if run.violation:
            short = replay(Rules(), seed, shrink(Rules(), seed, run.schedule))
            pytest.fail("\n  ".join([f"seed {seed}:", *(line for line in short.trace or () if line), f"VIOLATION: {short.violation}"]))


def test_every_rule_is_accounted_for() -> None:
    """A rule has a run that breaks without it, or is listed as one that no run has broken yet."""
    assert {*NOTICED, *NOT_NOTICED} == {*RULES}
    assert not {*NOTICED} & {*NOT_NOTICED}


@pytest.mark.parametrize("rule", NOTICED)
def test_every_rule_is_needed(rule: str) -> None:
    """Without the rule a known schedule loses or doubles something, and with it the same schedule does not."""
    seed = NOTICED[rule]
    run = random_run(replace(Rules(), **{rule: False}), seed)
    assert run.violation, f"the schedule of seed {seed} does not break without {rule} any more; find another by --without {rule}"
    assert replay(Rules(), seed, run.schedule).violation is None
