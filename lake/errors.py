"""Bad data is a value, a broken world is an exception.

The tree of exceptions; every message says what to do next:

    FirnError
    ├── RetryableError          the same call may succeed later: wait and repeat
    │   ├── UnavailableError    a service did not answer, or refused for now
    │   ├── OutcomeUnknownError a commit was sent and its answer is missing: find out before anything else
    │   └── ConflictError       a requirement failed because somebody else was faster: reload and decide again
    └── FatalError              repeating will not help: a person has to change something
        ├── SettingsError       a setting is missing, wrong or contradicts another
        ├── PrerequisiteError   a program, port, permission or space on the disk is missing
        ├── NotFoundError       the named thing does not exist
        ├── ProtocolError       a peer broke its contract (bytes that are not what the specification says)
        ├── ForeignFileError    a table's metadata names a file that is not the table's, or no ordinary file
        ├── TooLargeError       a file is larger than anything of its kind
        └── RefusedError        a peer understood and refuses (400, 403, a stale fencing token)
"""

from dataclasses import dataclass
from enum import StrEnum


class FirnError(Exception):
    """Root of every error Firn raises on purpose."""


class RetryableError(FirnError):
    """The same call may succeed later."""


class UnavailableError(RetryableError):
    """A service did not answer or refused for now."""


class OutcomeUnknownError(RetryableError):
    """A change was sent and nobody knows whether it happened; never redo it differently before that is
    known."""


class ConflictError(RetryableError):
    """A requirement of a change failed; reload, compare, decide again."""


class FatalError(FirnError):
    """Repeating will not help."""


class SettingsError(FatalError):
    """A setting is missing, wrong or contradicts another."""


class PrerequisiteError(FatalError):
    """Something outside Firn is missing: a program, a free port, a permission, space on the disk."""


class NotFoundError(FatalError):
    """The named thing does not exist."""


class ProtocolError(FatalError):
    """A peer sent something its specification does not allow."""


class ForeignFileError(FatalError):
    """A table's metadata names a file outside of the table's own places, or something that is no ordinary
    file."""


class TooLargeError(FatalError):
    """A file holds, or unpacks to, more than is read of its kind."""


class RefusedError(FatalError):
    """A peer understood the request and refuses it."""


class Reason(StrEnum):
    """Why a message went to the dead-letter topic as a whole. The value is what operators see and count
    by."""

    EMPTY = "empty"
    UNDECODABLE = "undecodable"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    TENANT_MISSING = "tenant_missing"
    TENANT_INVALID = "tenant_invalid"
    TENANT_RESERVED = "tenant_reserved"
    STREAM_INVALID = "stream_invalid"
    TOO_LATE = "too_late"
    TOO_FAR_AHEAD = "too_far_ahead"
    PAST_RETENTION = "past_retention"
    OVER_LIMIT = "over_limit"
    TABLE_DELETED = "table_deleted"
    UNSTORABLE = "unstorable"
    UNREADABLE = "unreadable"
    FOREIGN = "foreign"
    WITHHELD = "withheld"
    # Of the messages of a change stream.
    KEY_MISSING = "key_missing"
    KEY_UNUSABLE = "key_unusable"
    OP_UNKNOWN = "op_unknown"
    NOT_OF_SCHEMA = "not_of_schema"
    SCHEMA_UNKNOWN = "schema_unknown"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A piece of input that cannot be used: the reason is a constant to count by, the detail a sentence for a
    person."""

    reason: Reason
    detail: str
