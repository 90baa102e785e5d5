"""Syslog lines after RFC 5424, with structured data (section 6.3) in most of them."""

from collections.abc import Callable

from infra.demo.draws import Draws
from infra.demo.moments import rfc3339_millis

# Facility numbers of RFC 5424, section 6.2.1.
_DAEMON, _AUTH, _CRON, _LOCAL0 = 3, 10, 9, 16
_ERROR, _WARNING, _NOTICE, _INFO, _DEBUG = 3, 4, 5, 6, 7
# The number 32473 is the one RFC 5612 reserves for examples.
_ENTERPRISE = 32473

Body = tuple[int, int, str, str, str]


class Syslog5424:
    """The machines of one site: ssh, cron, a packet filter, a database, a mail server. `line` gives one line
    at a moment."""

    def __init__(self, draws: Draws, site: str) -> None:
        self._draws = draws
        names = ("gw", "db", "mail", "build", "nas", "vpn")
        ascii_site = site.encode("idna").decode()
        self._hosts = draws.zipf_pool(
            [f"{name}{number}.{ascii_site}" for number in range(1, 6) for name in names]
        )
        self._users = draws.zipf_pool(
            ["root", "admin", "deploy", "backup", "oracle", "test", "ubuntu", "git", "ana", "goran"]
        )
        bodies: list[tuple[Callable[[], Body], float]] = [
            (self._ssh_refused, 30),
            (self._ssh_accepted, 8),
            (self._cron, 14),
            (self._packet_filter, 26),
            (self._database, 14),
            (self._mail, 8),
        ]
        self._bodies = draws.weighted_pool(bodies)
        self._durations_ms = draws.log_normal_pool(180.0, 1.1)

    def line(self, at_ms: int) -> str:
        facility, severity, app, data, message = self._draws.pick(self._bodies)()
        host, process = self._draws.pick(self._hosts), 400 + self._draws.below(60_000)
        return (
            f"<{facility * 8 + severity}>1 {rfc3339_millis(at_ms)} {host} {app} {process} - {data} {message}"
        )

    def _address(self) -> str:
        return f"198.51.100.{1 + self._draws.below(254)}"

    def _ssh_refused(self) -> Body:
        user, address, port = self._draws.pick(self._users), self._address(), 1024 + self._draws.below(64_000)
        data = (
            f'[auth@{_ENTERPRISE} method="password" result="failure" user="{user}" '
            f'attempt="{1 + self._draws.below(6)}"]'
        )
        return (
            _AUTH,
            _WARNING,
            "sshd",
            data,
            f"Failed password for invalid user {user} from {address} port {port} ssh2",
        )

    def _ssh_accepted(self) -> Body:
        user, address, port = self._draws.pick(self._users), self._address(), 1024 + self._draws.below(64_000)
        data = f'[auth@{_ENTERPRISE} method="publickey" result="success" user="{user}"]'
        return (
            _AUTH,
            _INFO,
            "sshd",
            data,
            (
                f"Accepted publickey for {user} from {address} port {port} ssh2: ED25519 "
                f"SHA256:{self._draws.hex(40)}"
            ),
        )

    def _cron(self) -> Body:
        user = self._draws.pick(self._users)
        return (
            _CRON,
            _INFO,
            "CRON",
            "-",
            (
                f"({user}) CMD (/usr/local/bin/rotate-backups --keep {1 + self._draws.below(30)} > "
                "/var/log/rotate.log 2>&1)"
            ),
        )

    def _packet_filter(self) -> Body:
        source, port, length = self._address(), self._draws.below(65_536), 40 + self._draws.below(1_400)
        data = (
            f'[packet@{_ENTERPRISE} in="eth0" proto="TCP" src="{source}" dpt="{port}" '
            f'len="{length}"][timeQuality tzKnown="1" isSynced="1"]'
        )
        message = (
            f"DROP IN=eth0 OUT= SRC={source} DST=10.20.0.{1 + self._draws.below(254)} LEN={length} "
            f"PROTO=TCP DPT={port} SYN"
        )
        return _LOCAL0, _NOTICE, "kernel", data, message

    def _database(self) -> Body:
        duration_ms = self._draws.pick(self._durations_ms)
        severity = _WARNING if duration_ms > 1_000 else _DEBUG
        # Quotes, backslashes and closing brackets inside a value are escaped with a backslash (RFC 5424,
        # section 6.3.3).
        data = (
            f'[query@{_ENTERPRISE} database="orders" duration_ms="{duration_ms:.1f}" plan="Index Scan '
            'using \\"orders_pkey\\" [cost=0.42\\]"]'
        )
        return (
            _LOCAL0,
            severity,
            "postgres",
            data,
            f"duration: {duration_ms:.3f} ms  execute order_by_id: {self._draws.below(10**7)}",
        )

    def _mail(self) -> Body:
        queue_id, size = self._draws.hex(10).upper(), 900 + self._draws.below(90_000)
        data = f'[mail@{_ENTERPRISE} queue="{queue_id}" size="{size}" note="Grüße aus Zürich"]'
        severity = _ERROR if self._draws.uniform() < 0.1 else _INFO
        message = (
            f"{queue_id}: to=<shop@example.com>, relay=mx.example.com[203.0.113.25]:25, size={size}, "
            "dsn=2.0.0, status=sent (250 OK)"
        )
        return _DAEMON, severity, "postfix/smtp", data, message
