"""The rules of the protocol, each of which some schedule needs."""

from dataclasses import dataclass, fields


class Violation(Exception):
    """Something was lost or doubled; the message names it."""


@dataclass(frozen=True)
class Rules:
    """The protocol as built, one flag per rule; False leaves the rule out, which some run has to notice."""

    compare_with_marks: bool = True  # a flush is compared with the table's marks before every attempt
    reload_after_conflict: bool = True  # what somebody else changed is loaded before it is compared again
    assert_head: bool = True  # a commit lands only on the head it was prepared for
    assert_sequence: bool = True  # nor on one that was there before and has come again, moved back
    find_out_unknown: bool = True  # an unknown outcome is neither success nor failure
    discard_what_is_lost: bool = True  # files go of attempts that have certainly not landed, of no others
    redo_what_is_ahead: bool = True  # rows below the marks leave a flush
    skip_below_marks: bool = True  # rows below the marks of a table just met are left out
    name_only_what_is_new: bool = True  # a flush names no partition that the table has committed up to there
    end_is_routed: bool = True  # a flush ends behind the last routed record, not where the consumer is
    one_flush_in_flight: bool = True  # per table and worker
    dead_letters_first: bool = True  # acknowledged before their flush is handed over
    offsets_wait_for_buffers: bool = True
    offsets_wait_for_flights: bool = True
    offsets_wait_for_acknowledgements: bool = True
    offsets_wait_for_the_lease: bool = True  # held once more after all they stand on was acknowledged
    marks_in_the_commit: bool = True  # not in a change of their own
    record_before_parking: bool = True  # nothing is parked before the parked record is durable
    parked_at_start: bool = True  # a node reads the parked records before it routes anything
    unfinished_first: bool = True  # what is in flight and buffered is parked before live records
    parking_has_an_id: bool = True  # a drain takes only messages of its own parking
    drained_in_order: bool = True  # what was taken is not taken again, and nothing below it later
    refuse_live_while_parked: bool = True  # a flush cut before the table was parked is not committed
    everybody_holds: bool = True  # all workers have told that what they parked is acknowledged
    hold_after_acknowledgement: bool = True
    held_records_wait: bool = True  # they are not parked while the rest is drained
    drain_after_the_hold: bool = True  # once more, up to what the topic holds then
    finish_behind_what_was_read: bool = (
        True  # from where the drain before it has read, not from where the topic ended when it was done
    )
    release_when_known: bool = True  # not before the catalog has said that the record is gone
    numbered_orders: bool = True  # an answer to an order that was given up does not count
    record_under_lease: bool = True  # the parked record changes only under the newest token
    record_by_version: bool = True  # and over the version last read
    record_once: bool = True  # a repeated change has the same key, and happens once
    take_up_before_known: bool = (
        True  # a parked record that somebody has changed since comes first: a person may have rows read again
    )
    known_under_the_lease: bool = True  # what was loaded counts once the lease was in force after it
    compare_head: bool = True  # marks beyond those of the head's summary mean that it was moved back
    marks_never_go_back: bool = True  # marks before those last known, too
    forget_what_was: bool = True  # but not once a person has decided
    maintenance_repeats_head: bool = True  # a snapshot without rows says of the marks what its parent said
    keep_rolled_back: bool = True  # a table that was moved back waits for a person
    reread_from_input: bool = True  # what was taken away is read from the input topic
    reread_what_is_parked: bool = True  # from the input topics, too, where all of them are read again
    resolve_in_a_commit: bool = True  # on the head that was read, and with a new one
    notice_vanished: bool = True  # a table that is gone without having been dropped went back, too
    ask_checkpoint: bool = True  # a catalog that went back is noticed at the next start
    keep_newer_checkpoint: bool = (
        True  # a node goes on from the checkpoints it finds: what it meets itself may be older
    )

    # ---- several nodes at work
    marks_of_others_stay: bool = True  # a commit takes over the marks of partitions that are another node's
    one_node_parks: bool = True  # who parks holds all shares; others say what is to be parked, and end
    nothing_parked_is_shared: bool = (
        True  # who holds some shares begins, and takes a table as known, only where nothing of it is parked
    )

    # ---- keyed tables
    last_change_wins: bool = True  # of all changes of a key in one commit
    own_rows_go: bool = True  # of changes that do not win, where they were just written
    earlier_rows_go: bool = True  # of the keys that change
    first_row_stays: bool = True  # where the first change of a key wins
    older_changes_pass: bool = True  # by the source's order, where the table goes by that
    rows_go_in_the_commit: bool = True  # that brings the new ones, not in one after it
    resolve_on_the_head: bool = True  # positions found on another head do not count
    resolve_for_the_flushes: bool = True  # nor those found for other flushes
    truncation_empties: bool = True  # what the table had goes
    truncation_ends_steps: bool = True  # and what stands before it in its commit
    vectors_keep_what_was: bool = True  # a new deletion vector holds what the one before it held
    commit_without_rows: bool = True  # a flush that only deletes is committed, too
    merges_carry_deletes: bool = True  # that came to their inputs meanwhile
    merges_assert_head: bool = True  # what comes after a merge has looked is looked at again
    merges_need_their_inputs: bool = True  # where one is gone, the merge is given up
    merges_need_their_deletes: bool = True  # and where a row that it left out is there again


RULES = tuple(rule.name for rule in fields(Rules))
