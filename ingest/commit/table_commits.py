"""The commits of a table: what its flushes are compared with, and what follows from answers."""

from ingest.commit.table_events import (
    DRAINS,
    Answered,
    Commit,
    CommitTrouble,
    Compare,
    Discard,
    Event,
    Flushed,
    Gather,
    NoteAhead,
    Sent,
    Settle,
    Submitted,
    Took,
)
from ingest.commit.table_parking import TableParking
from ingest.commit.table_work import Job, moved_back
from ingest.model.link import Outcome, WrittenFlush
from ingest.model.trouble import Cause, Trouble
from lake.backoff import Backoff
from lake.catalog_client import CommitStatus
from lake.commit import TableState
from lake.marks import Marks, Verdict

COMMIT_RETRIES = Backoff(0.2, 5.0)


class TableCommits(TableParking):
    """How the flushes of a table come to be committed. A drain commits, too, while the table is parked."""

    def _on_commit(self, event: Event) -> None:
        match event:
            case Submitted(flushed):
                if self._accepts(flushed.flush.drain):
                    self.waiting.append(flushed)
            case Gather():
                if self.job is None and self.waiting:
                    self.job, self.waiting = Job(self.waiting), []
            case _:
                # Without a job its records go another way; what is in the air may still land, and the marks
                # will tell.
                if self.job is not None:
                    self._on_job(self.job, event)

    def _on_job(self, job: Job, event: Event) -> None:
        match event:
            case Compare(marks):
                self._compare(job, marks)
            case Sent(prepared):
                if job.sent is not prepared:
                    job.sent, job.sent_on, job.was_unknown = prepared, self.known, False
                job.in_air = True
            case Answered() if job.in_air and job.sent is event.prepared:
                job.in_air = False
                self._answered_commit(job, event)

    def _accepts(self, drain: int) -> bool:
        """Whether a flush may be committed: one from the input (0) while the table is live, one of the drain
        that goes on, by its number, while it is parked."""
        if self._parked is None:
            return not drain
        return drain == self._parked.number and self._parked.stage in DRAINS

    def _compare(self, job: Job, marks: Marks) -> None:
        """What is committed or has to be written again leaves the job."""
        known = self.known
        assert known is not None
        if job.sent is not None:
            if job.sent.after.uuid == known.uuid and self._is_there(job, marks):
                self._done(job)
                return
            if job.sent_on is not None and (job.sent_on.head, job.sent_on.exists) == (
                known.head,
                known.exists,
            ):
                self._commands.append(Commit())  # the identical request again
                return
            job.sent = None
        count = len(job.flushes)
        for flushed in list(job.flushes):
            verdict = self._verdict(flushed.flush, known, marks)
            if isinstance(verdict, Trouble):
                self._commit_later(job)
                self._commit_failed(verdict)
                return
            if verdict is not None:
                self._settle(job, [flushed], verdict)
        if job.refused is not None and self._has_not_landed(job, has_all=len(job.flushes) == count):
            self._commands.append(Discard(job.refused))
        job.refused = None
        if job.flushes:
            self._commands.append(Commit())

    def _verdict(self, flush: WrittenFlush, known: TableState, marks: Marks) -> Outcome | Trouble | None:
        """None: commit it as it is."""
        if flush.uuid != known.uuid:
            return Outcome.REDO  # dropped and created again meanwhile
        verdict = marks.compare(flush.ranges)
        if verdict is Verdict.COMMITTED:
            return Outcome.DONE
        if verdict is Verdict.BEHIND:
            lost = Marks({partition: start for partition, (start, _) in flush.ranges.items()})
            sentence = f"{moved_back(known).sentence}; this node had written up to {lost.to_property()}"
            return Trouble(Cause.ROLLED_BACK, sentence, lost)
        if verdict is Verdict.AHEAD:
            self._commands.append(NoteAhead(known))
            return Outcome.REDO
        return None if self.columns.stand(known, flush.new, flush.widened) else Outcome.REDO

    def _answered_commit(self, job: Job, answer: Answered) -> None:
        status = answer.status
        if status is CommitStatus.COMMITTED:
            assert job.sent is not None
            self.learn(job.sent.after)
            self._done(job, job.sent.after)
            return
        if answer.dead_letters:
            self._settle(job, job.flushes, Outcome.DEAD_LETTER)
            return
        self.is_fresh = False
        if status is CommitStatus.UNKNOWN:
            job.was_unknown = True
        else:
            # After a conflict the head that it asserts is gone; what failed may land yet, if it comes twice.
            job.sent, job.refused = None, job.sent if status is CommitStatus.CONFLICT else None
        if status is not CommitStatus.CONFLICT:
            self._commit_later(job)
            if answer.trouble is not None and answer.parks:
                self._commit_failed(answer.trouble)
        elif job.sent_on is not None and not job.sent_on.exists:
            self._commit_later(job)
            if job.tries > 1:  # who was faster would have been found by now
                self._commit_failed(Trouble(Cause.REFUSED, answer.message))

    def learn(self, state: TableState) -> None:
        """The state after a commit of one's own that was acknowledged."""
        self.known, self.is_fresh = state, True
        self.columns.committed(state)

    def _done(self, job: Job, after: TableState | None = None) -> None:
        self._commands.append(Took(job.rows, after))
        self._settle(job, job.flushes, Outcome.DONE)

    def _settle(self, job: Job, flushes: list[Flushed], outcome: Outcome) -> None:
        self._commands.append(Settle(flushes, outcome))
        job.flushes = [flushed for flushed in job.flushes if flushed not in flushes]
        if not job.flushes:
            self.job = None

    def _commit_later(self, job: Job) -> None:
        job.tries += 1
        job.not_before_s = self._now_s + COMMIT_RETRIES.delay_s(job.tries)

    def _commit_failed(self, trouble: Trouble) -> None:
        if self._parked is None:
            self._commands.append(CommitTrouble(trouble))
        else:
            self._failed(self._parked, trouble)

    # ---- rules

    def _has_not_landed(self, job: Job, *, has_all: bool) -> bool:
        """Whether of a refused attempt nothing is left but its files: it was never unknown, and the table as
        it is since has none of its flushes. What others leave is found by the weekly search for orphans."""
        return has_all and not job.was_unknown

    def _is_there(self, job: Job, marks: Marks) -> bool:
        """Whether a commit of unknown outcome has landed, as the marks say."""
        return marks.compare(job.ranges) is Verdict.COMMITTED
