"""Masks messages: value, key and headers, before anything else is done with them.

A message whose value cannot be masked is left without one. Its last header, `firn.withheld`, says how many
bytes it had and their hash, and makes a dead letter of it (`withheld_of`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import NamedTuple

from confluent_kafka import Message

from ingest.decode.column_name import column_name
from ingest.decode.decoder import Pairs, json_text
from ingest.decode.event_time import zone
from ingest.decode.formats.otlp_protobuf import OTLP_PROTOBUF
from ingest.decode.formats.registry import AUTO, JSON, TEXT
from ingest.kafka.header_workaround import UNREADABLE
from ingest.mask.content import WIRE_FORMAT, Content, Reading, Shape, is_readable, read_beside
from ingest.mask.rule_set import Fate, RuleSet, digest
from ingest.mask.tree import Found, Masked, Walk
from ingest.model.raw_rows import Headers
from lake.errors import Reason, Rejected, SettingsError
from lake.settings import FormatName, MaskRule, TopicSettings

TURN_BYTES, TURN_MESSAGES = 2 * 1024 * 1024, 4_096
WITHHELD = "firn.withheld"
TEXTUAL = frozenset({AUTO, JSON, TEXT})  # formats of text, where it does not begin as protobuf
# Members of a message that hold the columns of a row.
_IMAGES = {"debezium": frozenset({"before", "after"}), "maxwell": frozenset({"data", "old"})}


class Parts(NamedTuple):
    """What of a message is masked. `timestamp_ms`: its Kafka timestamp, ms since 1970."""

    key: bytes | None
    headers: Headers
    value: bytes | None
    timestamp_ms: int


class _Opened(NamedTuple):
    value: Content | None
    key: Content | None
    headers: Sequence[Content | None]


class MaskCounts(NamedTuple):
    """What was masked: values by rule, and messages; and how many values were withheld."""

    values: Counter[MaskRule]
    messages: int
    withheld: int


class MessageMask:
    """Masks the messages of one topic.

    `key`: of hashes, None where no rule hashes. `depth_max`: how deep records may nest. `keeps_hashes`: as of
    `RuleSet`. Raises SettingsError where a rule is none.
    """

    def __init__(
        self, topic: TopicSettings, key: bytes | None, depth_max: int, *, keeps_hashes: bool = False
    ) -> None:
        assert topic.masking is not None
        self._topic, self._masking, self._key = topic, topic.masking, key
        self._depth_max, self._keeps_hashes = depth_max, keeps_hashes
        self._images = _IMAGES.get(topic.changes.format, frozenset()) if topic.changes else frozenset[str]()
        self._sets: dict[tuple[MaskRule, ...], RuleSet] = {}
        self._counts, self._messages, self._withheld = Counter[MaskRule](), 0, 0
        self.names_streams = any(rule.streams for rule in self._masking.rules)
        _check_rules(topic, self.rules_of(None))  # an expression that is none is told now, too

    def rules_of(self, stream: str | None) -> RuleSet:
        """Returns the rules that hold for a stream; of None, which is no stream, all of them."""
        rules = tuple(
            rule
            for rule in self._masking.rules
            if stream is None or not rule.streams or stream in rule.streams
        )
        if rules not in self._sets:
            self._sets[rules] = RuleSet(
                self._topic.name, rules, self._key or b"", keeps_hashes=self._keeps_hashes
            )
        return self._sets[rules]

    def masked(
        self,
        messages: Sequence[Message],
        stream_of: Callable[[Message], str | None],
        surplus: Set[int] = frozenset(),
    ) -> list[Message]:
        """Returns the messages as they may be kept, in their order. `stream_of`: where one goes; None where
        it goes nowhere. `surplus`: places of those whose values are withheld instead of masked."""
        left, places_of = list(messages), dict[str | None, list[int]]()
        for at, message in enumerate(messages):
            places_of.setdefault(stream_of(message) if self.names_streams else None, []).append(at)
        for stream, places in places_of.items():
            if not self.rules_of(stream).rules:
                continue
            before = [_parts(messages[at]) for at in places]
            asked = [
                old._replace(value=None) if at in surplus else old
                for at, old in zip(places, before, strict=True)
            ]
            masked = self.masked_parts(asked, stream)
            for at, old, new in zip(places, before, masked, strict=True):
                if at in surplus:
                    left[at] = _with_parts(messages[at], self._without_value(new, old.value or b""))
                elif new is not old:
                    left[at] = _with_parts(messages[at], new)
        return left

    def masked_one(self, message: Parts, stream: str | None) -> Parts:
        """Returns the parts of one message as they may be kept."""
        return self.masked_parts([message], stream)[0]

    def masked_parts(self, messages: Sequence[Parts], stream: str | None) -> list[Parts]:
        """Returns the same of the parts of messages; those that stay as they are themselves."""
        rules = self.rules_of(stream)
        if not rules.rules:
            return list(messages)
        return [left for some in _in_turns(messages) for left in self._masked_together(rules, some)]

    def _masked_together(self, rules: RuleSet, messages: Sequence[Parts]) -> list[Parts]:
        may_cut = rules.may_cut([_as_text(message, self._topic.format) for message in messages])
        if rules.takes:
            return self._masked_by(rules, messages, may_cut)
        those = [message for message, may in zip(messages, may_cut, strict=True) if may]
        left = iter(self._masked_by(rules, those, [True] * len(those)))
        return [next(left) if may else message for message, may in zip(messages, may_cut, strict=True)]

    def _masked_by(self, rules: RuleSet, messages: Sequence[Parts], may_cut: Sequence[bool]) -> list[Parts]:
        local = zone(self._topic.time_zone)
        reading = Reading(
            self._topic.format,
            self._depth_max,
            local,
            self._images if self._topic.has_changes else None,
            rules.has_fields,
        )
        opened = [self._opened(message, reading) for message in messages]
        found = Found()
        if rules.cuts:
            looking = Walk(rules, found, Counter())
            for one, message, may in zip(opened, messages, may_cut, strict=True):
                if may:
                    self._walked(one, message, looking, rules)
        masked = Masked(rules, found, self._counts)
        masking = Walk(rules, masked, self._counts)
        return [
            self._closed(one, message, self._walked(one, message, masking, rules), rules)
            if masked.changes_any or rules.takes or not self._is_untouched(one, rules)
            else message
            for one, message in zip(opened, messages, strict=True)
        ]

    def _opened(self, message: Parts, reading: Reading) -> _Opened:
        headers = () if message.headers is UNREADABLE else message.headers
        return _Opened(
            reading.read(message.value, message.timestamp_ms * 1000) if message.value else None,
            read_beside(message.key, self._depth_max) if message.key else None,
            [read_beside(data, self._depth_max) if data else None for _, data in headers],
        )

    def _walked(self, one: _Opened, message: Parts, walk: Walk, rules: RuleSet) -> _Opened:
        """The content of a message, masked; the parts of it that stay as they are themselves."""
        value = one.value and self._content(one.value, walk, rules)
        key = one.key and self._beside(one.key, walk, rules.of_key, rules)
        headers = [
            content and self._beside(content, walk, rules.of_header(name), rules)
            for content, (name, _) in zip(one.headers, message.headers, strict=False)
        ]
        return _Opened(value, key, headers)

    def _content(self, content: Content, walk: Walk, rules: RuleSet) -> Content:
        return content.with_parts(
            [
                self._object(part, walk)
                if isinstance(part, Pairs)
                else walk.value(part, "", rules.everywhere)
                for part in content.parts
            ]
        )

    def _object(self, pairs: Pairs, walk: Walk) -> Pairs:
        return walk.change(pairs, self._images) if self._topic.has_changes else walk.members(pairs, "")

    def _beside(self, content: Content, walk: Walk, fate: Fate, rules: RuleSet) -> Content | None:
        """A key or a header. None: it is dropped."""
        (part,) = content.parts
        if fate.taken is not None and fate.taken.action == "drop":
            walk.count(fate.taken)
            return None
        if fate.taken is not None:
            text = json_text(part) if isinstance(part, Pairs) else part
            return Content(Shape.TEXT, [walk.hashed(text, fate.taken)])
        if isinstance(part, Pairs):
            return content.with_parts([self._object(part, walk)])
        if content.opaque and not self._is_maskable(content, rules):
            return Content(Shape.TEXT, [f"withheld: {self._described(content.opaque[0])}"])
        return content.with_parts([walk.value(part, "", fate.cutters)])

    def _is_maskable(self, content: Content | None, rules: RuleSet) -> bool:
        """Whether the rules can be asked about all that there is."""
        opaque = content.opaque if content is not None else {}
        return self._masking.unparsed == "cut" or not any(
            rules.has_fields or not self._is_readable(data) for data in opaque.values()
        )

    def _is_readable(self, data: bytes) -> bool:
        return is_readable(data, may_be_binary=self._topic.format not in (AUTO, TEXT))

    def _is_untouched(self, one: _Opened, rules: RuleSet) -> bool:
        """Whether nothing of a message has to be withheld."""
        return all(self._is_maskable(content, rules) for content in (one.value, one.key, *one.headers))

    def _closed(self, one: _Opened, message: Parts, left: _Opened, rules: RuleSet) -> Parts:
        """The parts of a message with what is left of its content."""
        headers = message.headers
        if message.headers is not UNREADABLE:
            kept = list(zip(message.headers, one.headers, left.headers, strict=True))
            if any(not _is_same(old, new) for _, old, new in kept):
                headers = [
                    (name, data if _is_same(old, new) else _bytes_of(new))
                    for (name, data), old, new in kept
                    if old is None or new is not None
                ]
        key = message.key if _is_same(one.key, left.key) else _bytes_of(left.key)
        value = message.value if _is_same(one.value, left.value) else _bytes_of(left.value)
        if (
            one.value is not None
            and left.value is not None
            and (
                not self._is_maskable(one.value, rules) or (value is not message.value and left.value.is_lost)
            )
        ):
            value, headers = self._withheld_from(message, one.value, left.value, rules, headers)
        if key is message.key and headers is message.headers and value is message.value:
            return message
        self._messages += 1
        return Parts(key, headers, value, message.timestamp_ms)

    def _withheld_from(
        self, message: Parts, before: Content, left: Content, rules: RuleSet, headers: Headers
    ) -> tuple[bytes | None, Headers]:
        """A value without the records that cannot be masked; without any where that is not a matter of some
        of its records."""
        parts = list(left.parts)
        for at, data in before.opaque.items():
            if rules.has_fields or not self._is_readable(data):
                self._withheld += 1
                parts[at] = f"withheld: {self._described(data)}"
        if left.shape is Shape.RECORDS and not left.is_lost:
            return left.with_parts(parts).to_bytes(), headers
        described = self._described(message.value or b"").encode()
        if headers is UNREADABLE:
            return None, headers
        return None, [*headers, (WITHHELD, described)]

    def _without_value(self, masked: Parts, value: bytes) -> Parts:
        """What is kept of a message whose value is not paid for: its masked key and headers, and what the
        value was."""
        self._withheld += 1
        described = self._described(value).encode()
        return masked._replace(headers=[*masked.headers, (WITHHELD, described)])

    def _described(self, data: bytes) -> str:
        return f"{len(data)} bytes" + (f", {digest(self._key, data)}" if self._key else "")

    def take_counts(self) -> MaskCounts:
        """Returns what was masked since the last call."""
        counts = MaskCounts(self._counts, self._messages, self._withheld)
        self._counts, self._messages, self._withheld = Counter(), 0, 0
        return counts


def withheld_of(headers: Headers) -> Rejected | None:
    """Returns why a message without a value has none, where masking has withheld it."""
    if not headers or headers[-1][0] != WITHHELD:
        return None
    told = (headers[-1][1] or b"").decode("utf-8", "backslashreplace")
    return Rejected(
        Reason.WITHHELD,
        f"{told}: rules by field cannot look for their fields in it, or it is no text, so that its value is "
        "kept nowhere",
    )


def _check_rules(topic: TopicSettings, rules: RuleSet) -> None:
    """Raises SettingsError where a message could not be routed any more, or a change not be told from
    others."""
    for asked in (*topic.tenant, *topic.stream):
        kind, _, name = asked.partition(":")
        fates = {"field": rules.of_column(column_name("", name)), "header": rules.of_header(name)}
        fate = rules.of_key if asked == "key" else fates.get(kind)
        if fate is not None and fate.taken is not None:
            raise SettingsError(
                f"topic {topic.name}: {asked} names the table of a message, and rule {fate.taken.name} of "
                f"its masking would {fate.taken.action} that; names of tenants and streams stand everywhere, "
                "so take another field or header for them"
            )
    for name in topic.changes.key if topic.changes is not None else ():
        taken = rules.of_column(column_name("", name)).taken
        if taken is not None and taken.action == "drop":
            raise SettingsError(
                f"topic {topic.name}: {name} is a part of the key of rows, and rule {taken.name} of its "
                "masking would drop it; hash it"
            )


def _is_same(old: Content | None, new: Content | None) -> bool:
    if old is None or new is None:
        return old is new
    return all(one is other for one, other in zip(old.parts, new.parts, strict=True))


def _as_text(message: Parts, form: FormatName) -> str | None:
    """A message as one text in which every text of its fields stands as it is; None where that is not so:
    where there are escapes, where it is protobuf, or no text at all."""
    value = message.value or b""
    if form not in TEXTUAL or value[:1] in (OTLP_PROTOBUF.begins, WIRE_FORMAT):
        return None
    try:
        text = b"\n".join([value, message.key or b"", *(data or b"" for _, data in message.headers)]).decode()
    except UnicodeDecodeError:
        return None
    return None if "\\" in text else text


def _in_turns(messages: Sequence[Parts]) -> Iterator[Sequence[Parts]]:
    """The messages in turns: while they are masked they are many times as large."""
    first = size = 0
    for at, message in enumerate(messages):
        size += len(message.value or b"")
        if size >= TURN_BYTES or at - first + 1 >= TURN_MESSAGES:
            yield messages[first : at + 1]
            first, size = at + 1, 0
    if first < len(messages):
        yield messages[first:]


def _bytes_of(content: Content | None) -> bytes | None:
    return None if content is None else content.to_bytes()


def _parts(message: Message) -> Parts:
    return Parts(message.key(), message.headers() or (), message.value(), message.timestamp()[1])


def _with_parts(message: Message, parts: Parts) -> Message:
    return Message(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=parts.key,
        value=parts.value,
        headers=parts.headers if parts.headers is UNREADABLE else list(parts.headers),
        timestamp=message.timestamp(),
    )
