"""The environment of programs that tests start: without the settings of whoever runs the tests."""

import os

# No settings of a room: where downloaded and built parts lie, and which native core is used.
KEPT = ("FIRN_CACHE", "FIRN_CORE")


def without_settings() -> dict[str, str]:
    """Returns this process's variables but for Firn's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FIRN_") or name in KEPT}
