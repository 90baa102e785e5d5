"""Who may talk to whom, as the manifests of NetworkPolicies say."""

from typing import Any

COMPONENT = "app.kubernetes.io/component"
ANYWHERE = "anywhere"

Connection = tuple[str, str, int | None]


def connections(policies: dict[str, dict[str, Any]]) -> set[Connection]:
    """Return caller, called and port (None: any) of what gets through: two programs both have to say so."""
    out, into = _told(policies)
    inside = {each for each in out & into if _is_inside(each, policies)}
    return inside | {each for each in out | into if not _is_inside(each, policies)}


def one_sided(policies: dict[str, dict[str, Any]]) -> set[Connection]:
    """Return what of two programs one says and the other does not."""
    out, into = _told(policies)
    return {each for each in out ^ into if _is_inside(each, policies)}


def _is_inside(connection: Connection, policies: dict[str, dict[str, Any]]) -> bool:
    return set(connection[:2]) <= policies.keys()


def _told(policies: dict[str, dict[str, Any]]) -> tuple[set[Connection], set[Connection]]:
    """What callers may do, and what those who are called let in."""
    out = {(name, *to) for name, policy in policies.items() for to in _sides(policy, "egress", "to")}
    into = {
        (caller, name, port)
        for name, policy in policies.items()
        for caller, port in _sides(policy, "ingress", "from")
    }
    return out, into


def _sides(policy: dict[str, Any], direction: str, key: str) -> list[tuple[str, int | None]]:
    """The other ends of one direction, with ports."""
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    found: list[tuple[str, int | None]] = []
    for rule in policy["spec"].get(direction) or []:
        ports = [port["port"] for port in rule.get("ports", [])] or [None]
        peers = [_peer(peer) for peer in rule.get(key) or []] or [ANYWHERE]
        found += [(peer, port) for peer in peers for port in ports]
    return found


def _peer(peer: dict[str, Any]) -> str:
    """A program's name, or what a peer outside says."""
    labels = peer.get("podSelector", {}).get("matchLabels", {})
    return str(labels.get(COMPONENT) or peer)
