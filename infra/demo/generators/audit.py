"""Wide, nested audit events of a cloud whose fields drift: with time new fields appear and types change, as
in the audit logs of public clouds."""

from collections.abc import Callable

from infra.demo.draws import Draws
from infra.demo.moments import rfc3339_seconds

# After so many events of one tenant the next era begins, with a few fields nobody has seen before.
EVENTS_PER_ERA = 1_500
# The drift ends here, so that a demo left running for days keeps well below a table's limit of columns.
ERAS_MAX = 60
FIELDS_PER_ERA = 3

_SERVICES = ("compute", "storage", "identity", "network", "functions", "database", "keys", "queue")
_VERBS = ("Describe", "List", "Get", "Create", "Update", "Delete", "Attach", "Assume")
_NOUNS = ("Instance", "Bucket", "Role", "Subnet", "Function", "Cluster", "Key", "Queue", "Policy", "Snapshot")
_REGIONS = ("eu-central-1", "eu-west-1", "us-east-1", "ap-south-1")
_NEW_NAMES = (
    "encryption",
    "replication",
    "throughput",
    "retention",
    "isolation",
    "lineage",
    "quota",
    "placement",
    "residency",
    "posture",
)


class Audit:
    """The account of one organisation. `event` gives one event at a moment; the number of events made so far
    decides the era."""

    def __init__(self, draws: Draws, site: str, events_per_era: int = EVENTS_PER_ERA) -> None:
        self._draws = draws
        self._made, self._events_per_era = 0, events_per_era
        self._actors = draws.zipf_pool([_actor(draws, number, site) for number in range(200)], 1.0)
        self._actions = draws.zipf_pool(
            [(service, f"{verb}{noun}") for service in _SERVICES for verb in _VERBS for noun in _NOUNS], 0.9
        )
        self._addresses = draws.zipf_pool([f"203.0.113.{number}" for number in range(1, 200)])

    def event(self, at_ms: int) -> dict[str, object]:
        draws = self._draws
        era = min(self._made // self._events_per_era, ERAS_MAX)
        self._made += 1
        service, action = draws.pick(self._actions)
        refused = draws.uniform() < 0.04
        event: dict[str, object] = {
            "eventVersion": f"1.{8 + era // 20:02}",
            "timestamp": rfc3339_seconds(at_ms),
            "eventId": f"{draws.hex(8)}-{draws.hex(4)}-4{draws.hex(3)}-b{draws.hex(3)}-{draws.hex(12)}",
            "eventSource": f"{service}.cloud.example.com",
            "eventName": action,
            "region": draws.pick(_REGIONS),
            "sourceAddress": draws.pick(self._addresses),
            "actor": draws.pick(self._actors),
            "requestParameters": self._parameters(service, action, era),
            "responseElements": None
            if action.startswith(("Describe", "List", "Get")) or refused
            else {"requestId": draws.hex(16), "version": _version(era)},
            "readOnly": action.startswith(("Describe", "List", "Get")),
        }
        if refused:
            event |= {
                "errorCode": "AccessDenied",
                "errorMessage": f"not authorised to perform {service}:{action} on this resource",
            }
        if era:
            event["additional"] = self._drifted_fields(era)
        return event

    def _parameters(self, service: str, action: str, era: int) -> dict[str, object] | None:
        draws = self._draws
        if action.startswith("List"):
            # The same field in two spellings, never both in one record, and as number first and as text
            # later.
            return {
                ("maxResults" if draws.uniform() < 0.7 else "MaxResults"): 50 if era < 2 else "50",
                "nextToken": None,
            }
        identity = f"{service[:3]}-{draws.hex(12)}"
        return {
            f"{service}Id": identity,
            "tags": {"team": "platform", "stage": "prod"}
            if era < 3
            else [{"key": "team", "value": "platform"}],
            "dryRun": draws.uniform() < 0.1 if era < 4 else {"value": False},
            "options": {
                service: {
                    "size": draws.below(64),
                    "zones": ["a", "b"],
                    "limits": {"burst": 2.5, "steady": draws.below(9)},
                }
            },
        }

    def _drifted_fields(self, era: int) -> dict[str, object]:
        """Fields of this era and of one earlier one; the name says the era, the kind of value changes with
        it."""
        draws = self._draws
        kinds: tuple[Callable[[], object], ...] = (
            lambda: draws.below(1_000),
            lambda: draws.hex(8),
            lambda: {"mode": "strict", "since": {"version": draws.below(9)}},
            lambda: [draws.below(9), "auto"],
            lambda: draws.uniform() < 0.5,
        )
        made: dict[str, object] = {}
        for seen in {era, 1 + draws.below(era)}:
            for number in range(FIELDS_PER_ERA):
                name = _NEW_NAMES[(seen * FIELDS_PER_ERA + number) % len(_NEW_NAMES)]
                made[f"{name}{seen:02}"] = kinds[(seen + number + (era - seen > 2)) % len(kinds)]()
        return made


def _version(era: int) -> object:
    return 3 if era < 5 else f"v{era}"


def _actor(draws: Draws, number: int, site: str) -> dict[str, object]:
    account = f"{draws.below(10**12):012}"
    return {
        "type": "AssumedRole" if number % 3 else "User",
        "principalId": f"P{draws.hex(16).upper()}:{number:04}",
        "name": f"arn:cloud:iam::{account}:role/{site}/operator-{number}",
        "accountId": account,
        "session": {
            "issuer": {"type": "Role", "userName": f"operator-{number}"},
            "attributes": {"mfa": "true" if number % 2 else "false"},
        },
    }
