"""Settings of masking: what of a topic's messages goes nowhere as it is."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from lake.settings.group import SettingsGroup

MaskAction = Literal["drop", "hash", "cut"]
MaskPattern = Literal["card", "email", "token"]
RULES_MAX = 64
KEY_CHARACTERS_MIN = 16
_NAME = re.compile(r"[a-z0-9_-]{1,32}", re.ASCII)


class MaskingSettings(SettingsGroup):
    """The key by which values are hashed that topics mask."""

    key: Annotated[
        SecretStr | None,
        Field(
            description=(
                "key of the HMAC-SHA-256 that masking puts in place of values; the same for all nodes and "
                "tools, or equal values are not equal any more. Read at the start"
            )
        ),
    ] = None

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.key is not None and len(self.key.get_secret_value()) < KEY_CHARACTERS_MIN:
            raise ValueError(
                f"key has fewer than {KEY_CHARACTERS_MIN} characters: whoever guesses it can try values "
                "until their hashes are those of rows. Take `openssl rand -hex 32`"
            )
        return self


class MaskRule(BaseModel):
    """What is masked, and how. `drop` and `hash` need to be told of what; `cut` is asked of everything where
    nothing is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(description="what metrics and `explain-message` call it")]
    action: Annotated[
        MaskAction,
        Field(
            description=(
                "drop: the field is left out; hash: its value becomes `hmac-sha256:` and 64 digits, equal "
                "for equal values; cut: what the patterns find in values becomes `[name of the pattern]`"
            )
        ),
    ]
    fields: Annotated[
        tuple[str, ...],
        Field(
            description=(
                "fields, by the columns that they would be: `user.email`, `user_email` and `User.Email` are "
                "the same; `*` stands for any characters; an object's name is everything in it"
            )
        ),
    ] = ()
    headers: Annotated[tuple[str, ...], Field(description="headers of the message, by name")] = ()
    key: Annotated[bool, Field(description="the key of the message as a whole")] = False
    patterns: Annotated[
        tuple[MaskPattern, ...],
        Field(
            description=(
                "what `cut` finds: card (numbers of 13 to 19 digits with the right check digit), email, "
                "token (bearer and JSON web tokens, keys of AWS, Google, GitHub, Slack and Stripe, private "
                "keys)"
            )
        ),
    ] = ()
    expressions: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=1_000)], ...],
        Field(description="regular expressions of RE2, whose time is linear, that `cut` finds as well"),
    ] = ()
    streams: Annotated[
        tuple[str, ...],
        Field(description="only for messages of these streams; empty: for all of the topic"),
    ] = ()

    @property
    def is_told(self) -> bool:
        """Whether it names what it is about."""
        return bool(self.fields or self.headers or self.key)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} names no rule; use up to 32 of a-z, 0-9, _ and -")
        finds = bool(self.patterns or self.expressions)
        if self.action == "cut" and not finds:
            raise ValueError(f"rule {self.name} cuts nothing: name patterns or expressions")
        if self.action != "cut" and finds:
            raise ValueError(f"rule {self.name}: patterns and expressions are for the action cut")
        if self.action != "cut" and not self.is_told:
            raise ValueError(f"rule {self.name}: say what to {self.action}: fields, headers, or key = true")
        if blank := [name for name in self.fields if not name.strip("*._ ")]:
            raise ValueError(f"rule {self.name}: {blank[0]!r} names no field")
        return self


class TopicMasking(BaseModel):
    """What of a topic's messages is masked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: Annotated[
        tuple[MaskRule, ...],
        Field(
            description="the rules, in TOML as [[ingest.topics.masking.rules]]; the first of a field counts",
            min_length=1,
            max_length=RULES_MAX,
        ),
    ]
    unparsed: Annotated[
        Literal["withhold", "cut"],
        Field(
            description=(
                "what becomes of a message in which rules by field cannot look for their fields: broken "
                "JSON, and lines of no known format. withhold: a dead letter without its value; cut: its "
                "text goes on as the patterns leave it"
            )
        ),
    ] = "withhold"
    over_limit: Annotated[
        Literal["mask", "withhold"],
        Field(
            description=(
                "what becomes of a message that is over its tenant's limit. mask: a dead letter, masked, "
                "which costs as much as masking a row; withhold: a dead letter without its value, which "
                "costs little and cannot be replayed. It is for topics where header, key or topic name "
                "tenant and stream"
            )
        ),
    ] = "mask"

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [rule.name for rule in self.rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"rules: {', '.join(twice)} stands there more than once")
        return self

    @property
    def withholds_surplus(self) -> bool:
        """Whether the values of messages over their tenants' limits are withheld instead of masked."""
        return self.over_limit == "withhold"

    @property
    def hashes(self) -> Sequence[str]:
        """Returns the rules that need a key."""
        return [rule.name for rule in self.rules if rule.action == "hash"]
