"""What is still to be sent of a rule's messages: in order for each receiver and alert, so that nobody hears
of an end before its beginning. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from lake.backoff import Backoff
from query.alerts.rule_state import Message, RuleState

MESSAGES_MAX = 500  # of one rule
RETRIES = Backoff(first_s=1.0, max_s=60.0)


def ready(state: RuleState, now_s: float) -> Iterator[Message]:
    """The messages that may be sent now: of each receiver and alert the first. One that waits is sent all the
    same where another one waits behind it."""
    heads = dict[tuple[str, str], Message]()
    followed = set[tuple[str, str]]()
    for message in state.outbox:
        line = message.to, message.key
        if line in heads:
            followed.add(line)
        heads.setdefault(line, message)
    for line, message in heads.items():
        is_waiting_for_retry = message.failures > 0
        if message.after_s <= now_s or (line in followed and not is_waiting_for_retry):
            yield message


def acknowledged(state: RuleState, message_id: str, now_s: float, shown_s: float) -> RuleState:
    """The state once a receiver has a message. What ends an alert is told `shown_s` after its beginning at
    the earliest, where both waited: a receiver that gathers alerts for a while would notify nobody of one
    that came and went at once."""
    sent = next((each for each in state.outbox if each.id == message_id), None)
    if sent is None:
        return state
    left = tuple(
        replace(each, after_s=now_s + shown_s) if sent.kind == "firing" and _is_next(each, sent) else each
        for each in state.outbox
        if each.id != message_id
    )
    return replace(state, outbox=left)


def failed(state: RuleState, message_id: str, now_s: float) -> RuleState:
    """The state once a message was not taken: it is sent again later, and later each time."""
    left = tuple(
        replace(each, failures=each.failures + 1, after_s=now_s + RETRIES.delay_s(each.failures + 1))
        if each.id == message_id
        else each
        for each in state.outbox
    )
    return replace(state, outbox=left)


def given_up(state: RuleState, message_id: str, why: str) -> RuleState:
    """The state without a message that its receiver will never take; it is kept in the history."""
    lost = next((each for each in state.outbox if each.id == message_id), None)
    if lost is None:
        return state
    left = tuple(each for each in state.outbox if each.id != message_id)
    return replace(state, outbox=left).noted(
        window=lost.episode.first, kind="undelivered", values=[], to=lost.to, why=why, episode=lost.episode.id
    )


def over_full(state: RuleState) -> list[Message]:
    """The oldest messages, beyond those that are kept of one rule."""
    return list(state.outbox[: max(0, len(state.outbox) - MESSAGES_MAX)])


def _is_next(message: Message, sent: Message) -> bool:
    return (message.to, message.key, message.episode.id) == (sent.to, sent.key, sent.episode.id)
