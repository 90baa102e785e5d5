"""Where webhooks may go. People write addresses into rules, and the API's server is somewhere inside of a
network, so it sends to hosts and ports that its operator named, follows no redirects, and looks at what a
name resolves to before it connects to exactly that."""

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from lake.errors import RefusedError, UnavailableError

PORTS = {"http": 80, "https": 443}
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Where clouds tell machines their secrets, outside of the link-local ranges.
METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))
Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Target:
    """A webhook's address, taken apart. `url`: as the rule has it."""

    url: str
    scheme: str
    host: str
    port: int

    @property
    def place(self) -> str:
        """Host and port, as settings name them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def target_of(url: str, allowed: Sequence[str]) -> Target:
    """The target of an address. `allowed`: hosts with their ports. Raises RefusedError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RefusedError(f"{url[:100]!r} is no address of a webhook") from None
    if parts.scheme not in PORTS or not parts.hostname or _is_odd(parts, url):
        raise RefusedError(
            f"{url[:100]!r} is no address of a webhook: write https://host/path, without a name and password"
        )
    target = Target(url, parts.scheme, parts.hostname.lower(), port or PORTS[parts.scheme])
    if target.place not in {each.lower() for each in allowed}:
        raise RefusedError(
            f"webhooks may not go to {target.place}; the operator allows targets by the setting "
            "alerts.webhook_targets"
        )
    return target


def _is_odd(parts: SplitResult, url: str) -> bool:
    """Whether readers of the address may disagree about its host."""
    return (
        "@" in parts.netloc
        or bool(parts.fragment)
        or not url.isascii()
        or any(c <= " " or c == "\\" for c in url)
    )


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host. Raises UnavailableError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnavailableError(f"the name {host} cannot be resolved: {error.strerror}") from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def address_for(target: Target, resolve: Resolve = resolve) -> str:
    """The address to connect to. Raises RefusedError where the name leads to one that nothing may be sent to,
    UnavailableError."""
    found = resolve(target.host, target.port)
    for each in found:
        if _is_forbidden(ipaddress.ip_address(each.partition("%")[0])):
            raise RefusedError(f"webhooks may not go to {target.place}: it is at {each}")
    if not found:
        raise UnavailableError(f"the name {target.host} has no address")
    return found[0]


def _is_forbidden(address: Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    if mapped is not None:
        address = mapped
    is_own = address.is_link_local or address.is_multicast or address.is_unspecified or address.is_reserved
    return is_own or address in METADATA
