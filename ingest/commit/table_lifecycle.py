"""One life of a table, as the main process of a node lives it: what is to happen to it is decided here.

Pure: no clock, no I/O, no thread. `TableLifecycle.on(event, now)` takes what has happened and returns the
state and the commands that follow (`table_events.py`). Whoever runs it (`TableStates`, `Committer`,
`Parking`, and the protocol's model in `tests/faults`) carries these out in order, and tells what comes of
them as further events.

    UNKNOWN --> LOADING --> LIVE <--> COMMITTING     a table that takes rows; from each of these it may be
                   ^---> POSTPONED                   parked

What was loaded counts as known only after two more questions (`table_states.py` says why). Before every
attempt to commit its flushes are compared with the marks, and outcomes are never guessed (`committer.py` has
the table).

               ParkTable               written                Probe
    LIVE ---------------> WRITING ---------------> PARKED ---------------> OPENING
     ^                       ^                       ^                        | known
     |                       | moved back            | trouble, too late      v
     | removed               '-----------------------+------------------- DRAINING
     |                                               |                        | end reached
     |         drained                all hold       |                        v
    RELEASING <--------- FINISHING <-----------------+-------------------- HOLDING

    writing     the parked record is being put into the catalog; before the answer is known nothing happens
                to the table
    parked      every worker sends the table's messages to the parking topic; the table is tried again from
                time to time, or a person decides
    opening     its state is being loaded
    draining    a worker writes what is parked, up to what the topic holds
    holding     every worker has what it parked acknowledged, and lets the table's messages wait
    finishing   the rest is drained
    releasing   the parked record is being taken away; when that is known the table is live again, and what
                waited is its next flush

From opening on, anything that goes wrong leads back to parked. The three parts are `table_loading.py`,
`table_commits.py` and `table_parking.py`. Why each rule is there, and a schedule that loses or doubles a
record without it: `tests/faults/model/protocol_rules.py`, `protocol_schedules.py`.
"""

from ingest.commit.table_commits import TableCommits
from ingest.commit.table_events import (
    Answered,
    BeginCheck,
    BeginLoad,
    Checked,
    Command,
    Compare,
    Event,
    Gather,
    Gone,
    Loaded,
    LoadFailed,
    MayCreate,
    MayNotCreate,
    NotChecked,
    Outdated,
    Sent,
    State,
    Submitted,
    Want,
)
from ingest.commit.table_loading import TableLoading

_LOADING_EVENTS = (
    Want,
    BeginLoad,
    Loaded,
    Gone,
    LoadFailed,
    BeginCheck,
    NotChecked,
    Checked,
    MayCreate,
    MayNotCreate,
    Outdated,
)
_COMMIT_EVENTS = (Submitted, Gather, Compare, Sent, Answered)


class TableLifecycle(TableLoading, TableCommits):
    """The one entry of a table, and what happens to it. Times are monotonic seconds.

    Rules are methods of their own at the end of each part: the protocol's model leaves them out in turn.
    """

    def on(self, event: Event, now_s: float) -> tuple[State, list[Command]]:
        """Takes note of what has happened; returns the state after it, and what is to be done, in order."""
        self._commands, self._now_s = [], now_s
        if isinstance(event, _LOADING_EVENTS):
            self._on_loading(event)
        elif isinstance(event, _COMMIT_EVENTS):
            self._on_commit(event)
        elif self._parked is None:
            self._on_live(event)
        else:
            self._on_parked(self._parked, event)
        return self.state, self._commands
