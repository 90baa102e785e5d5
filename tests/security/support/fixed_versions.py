"""JVM parts with known holes: from which version on each is mended, and what the hole was. infra/poms keeps
them out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fixed:
    """An artifact's first version without the hole."""

    artifact: str
    version: tuple[int, ...]
    reason: str


_MADE_YOU_RESET = (
    "CVE-2025-5115: a client makes the server reset its HTTP/2 streams and so have work done "
    "without limit (MadeYouReset); Trino serves HTTP/2"
)
_LZ4 = (
    "CVE-2025-12183, CVE-2025-66566: reads beyond the input, and gives what its buffers held before, on "
    "malformed input"
)
_AIRCOMPRESSOR = (
    "CVE-2025-67721: malformed Snappy or LZ4 gives what a reused buffer held before; Trino "
    "reads Parquet files that tenants may write"
)

FIXED = (
    *(
        Fixed(f"jetty-http2-{part}", (12, 0, 25), _MADE_YOU_RESET)
        for part in ("client", "client-transport", "common", "hpack", "server")
    ),
    # Jetty's jars go together: one of another version beside them fails at some method that is not there.
    *(
        Fixed(f"jetty-{part}", (12, 0, 25), _MADE_YOU_RESET)
        for part in ("alpn-server", "client", "http", "io", "security", "server", "session", "util")
    ),
    Fixed("lz4-java", (1, 10, 1), _LZ4),
    Fixed("aircompressor", (2, 0, 3), _AIRCOMPRESSOR),
    Fixed("aircompressor-v3", (3, 4), _AIRCOMPRESSOR),
    Fixed(
        "log4j-core",
        (2, 25, 4),
        "CVE-2025-68161, CVE-2026-34477: does not compare the name in the certificate of whom it sends logs "
        "to",
    ),
)
