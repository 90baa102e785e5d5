"""The protocol as a model, with one node at work and with two: no schedule loses or doubles a record, and
every rule is needed."""

import os
import random
from dataclasses import replace

import pytest

from tests.faults.model.protocol_model import random_run, replay, shrink
from tests.faults.model.protocol_rules import RULES, Rules, Violation
from tests.faults.model.protocol_schedules import SCHEDULES, play

RUNS = int(os.environ.get("FIRN_MODEL_RUNS", "50"))
# For rules the seed of a run that breaks without them; the others have a schedule written by hand. `python -m
# tests.faults.model.protocol_model --without all` finds new seeds when steps have changed.
NOTICED = {
    "compare_with_marks": 9,
    "reload_after_conflict": 54,
    "assert_head": 18,
    "find_out_unknown": 6,
    "discard_what_is_lost": 68,
    "redo_what_is_ahead": 18,
    "skip_below_marks": 18,
    "name_only_what_is_new": 471,
    "end_is_routed": 7,
    "one_flush_in_flight": 7,
    "offsets_wait_for_buffers": 33,
    "offsets_wait_for_flights": 6,
    "offsets_wait_for_acknowledgements": 239,
    "marks_in_the_commit": 6,
    "parked_at_start": 1064,
    "unfinished_first": 20,
    "drained_in_order": 32,
    "hold_after_acknowledgement": 152,
    "held_records_wait": 38,
    "drain_after_the_hold": 6,
    "finish_behind_what_was_read": 6,
    "record_by_version": 351,
    "compare_head": 58,
    "maintenance_repeats_head": 188,
    "keep_rolled_back": 194,
    "reread_from_input": 18,
    "ask_checkpoint": 55,
    "last_change_wins": 23,
    "own_rows_go": 23,
    "earlier_rows_go": 7,
    "first_row_stays": 70,
    "older_changes_pass": 64,
    "rows_go_in_the_commit": 7,
    "truncation_empties": 96,
    "truncation_ends_steps": 222,
    "commit_without_rows": 77,
}
# The same where two nodes share the input.
NOTICED_BY_TWO = {"marks_of_others_stay": 10}


@pytest.mark.long
@pytest.mark.timeout(300 + RUNS // 5)
@pytest.mark.parametrize("nodes", [1, 2])
def test_no_schedule_loses_or_doubles_a_record(nodes: int) -> None:
    """Crashes, takeovers, shares that move, late and lost answers, parking, drops, rollbacks, restored
    databases: in the end every record is where it belongs, once."""
    first = int(os.environ.get("FIRN_TEST_SEED", random.SystemRandom().randrange(10**9)))
    for seed in range(first, first + RUNS):
        run = random_run(Rules(), seed, nodes=nodes)
        if run.violation:
            short = replay(Rules(), seed, shrink(Rules(), seed, run.schedule, nodes), nodes)
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
    assert {*NOTICED, *NOTICED_BY_TWO, *SCHEDULES} == {*RULES}
    assert not {*NOTICED, *NOTICED_BY_TWO} & {*SCHEDULES}


@pytest.mark.parametrize("rule", [*NOTICED, *NOTICED_BY_TWO])
def test_random_schedules_need_the_rule(rule: str) -> None:
    """Without the rule a known schedule loses or doubles something, and with it the same schedule does
    not."""
    seed, nodes = (NOTICED | NOTICED_BY_TWO)[rule], 2 if rule in NOTICED_BY_TWO else 1
    run = random_run(replace(Rules(), **{rule: False}), seed, nodes=nodes)
    assert run.violation, (
        f"the schedule of seed {seed} does not break without {rule} any more; find another by --without "
        f"{rule}"
    )
    assert replay(Rules(), seed, run.schedule, nodes).violation is None


@pytest.mark.parametrize("rule", SCHEDULES)
def test_written_schedules_need_the_rule(rule: str) -> None:
    """The same for what was written for it."""
    play(rule, Rules())
    with pytest.raises(Violation):
        play(rule, replace(Rules(), **{rule: False}))
