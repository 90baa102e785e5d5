"""The protocol as a model: no schedule loses or doubles a record, and every rule is needed."""

import os
import random
from dataclasses import replace

import pytest

from tests.faults.protocol_model import random_run, replay, shrink
from tests.faults.protocol_script import SCRIPTS, play
from tests.faults.protocol_world import RULES, Rules, Violation

RUNS = int(os.environ.get("FIRN_MODEL_RUNS", "300"))
# For rules the seed of a run that breaks without them; the others have a schedule written by hand. `python -m
# tests.faults.protocol_model --without all` finds new seeds when steps have changed.
NOTICED = {
    "compare_with_marks": 2,
    "reload_after_conflict": 6,
    "assert_head": 61,
    "find_out_unknown": 5,
    "redo_what_is_ahead": 751,
    "skip_below_marks": 5,
    "name_only_what_is_new": 471,
    "end_is_routed": 5,
    "one_flush_in_flight": 50,
    "offsets_wait_for_buffers": 6,
    "offsets_wait_for_flights": 6,
    "offsets_wait_for_acknowledgements": 182,
    "marks_in_the_commit": 2,
    "parked_at_start": 440,
    "unfinished_first": 6,
    "drained_in_order": 6,
    "hold_after_acknowledgement": 362,
    "held_records_wait": 389,
    "drain_after_the_hold": 6,
    "finish_behind_what_was_read": 6,
    "record_by_version": 1359,
    "compare_head": 25,
    "maintenance_repeats_head": 290,
    "keep_rolled_back": 180,
    "reread_from_input": 25,
    "ask_checkpoint": 15,
    "keep_newer_checkpoint": 2002443,
}


def test_no_schedule_loses_or_doubles_a_record() -> None:
    """Crashes, takeovers, late and lost answers, parking, drops, rollbacks, restored databases: in the end
    every record is where it belongs, once."""
    first = int(os.environ.get("FIRN_TEST_SEED", random.SystemRandom().randrange(10**9)))
    for seed in range(first, first + RUNS):
        run = random_run(Rules(), seed)
        if run.violation:
            short = replay(Rules(), seed, shrink(Rules(), seed, run.schedule))
            pytest.fail(
                "\n  ".join(
                    [
                        f"seed {seed}:",
                        *(line for line in short.trace or () if line),
                        f"VIOLATION: {short.violation}",
                    ]
                )
            )


def test_every_rule_has_a_run_that_breaks_without_it() -> None:
    """A random one, or one written by hand where chance does not find any in some thousands."""
    assert {*NOTICED, *SCRIPTS} == {*RULES}
    assert not {*NOTICED} & {*SCRIPTS}


@pytest.mark.parametrize("rule", NOTICED)
def test_random_schedules_need_the_rule(rule: str) -> None:
    """Without the rule a known schedule loses or doubles something, and with it the same schedule does
    not."""
    seed = NOTICED[rule]
    run = random_run(replace(Rules(), **{rule: False}), seed)
    assert run.violation, (
        f"the schedule of seed {seed} does not break without {rule} any more; find another by --without "
        f"{rule}"
    )
    assert replay(Rules(), seed, run.schedule).violation is None


@pytest.mark.parametrize("rule", SCRIPTS)
def test_written_schedules_need_the_rule(rule: str) -> None:
    """The same for what was written for it."""
    play(rule, Rules())
    with pytest.raises(Violation):
        play(rule, replace(Rules(), **{rule: False}))
