"""`python -m ui serve`: the front end as a process. FIRN_UI_API is the address of the search API.

FIRN_UI_ALLOWED_HOSTS: names, with commas between them, under which a proxy or others reach it.
FIRN_UI_ALLOWED_ORIGINS: pages besides its own. FIRN_UI_OIDC_*: where people log in (people-and-roles.md).
"""

import argparse
import os
import sys
from pathlib import Path

from ui.exposure import ExposedError, check_host
from ui.settings import HOST_VARIABLE, LoginSettingsError, api_uri, login_settings

PORT = 8501
SCRIPT = Path(__file__).with_name("server.py")


def main() -> None:
    """Serves the pages until it is stopped; an expected problem is one sentence and exit code 2."""
    asked = _arguments()
    try:
        check_host(asked.host, api_uri())
        login_settings()
    except (ExposedError, LoginSettingsError) as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error
    options = {
        "server.address": asked.host,
        "server.port": asked.port,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.enableCORS": "true",
        "server.enableXsrfProtection": "true",
        "browser.gatherUsageStats": "false",
    }
    os.environ[HOST_VARIABLE] = asked.host
    os.chdir(SCRIPT.parent.parent)  # where .streamlit lies, and from where the pages are imported
    # Imported here: that takes a CPU second, and what is refused above needs none of it.
    from streamlit.web.cli import main as streamlit

    sys.argv = ["streamlit", "run", str(SCRIPT), *(f"--{name}={value}" for name, value in options.items())]
    streamlit(prog_name="streamlit")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ui",
        description="The browser's side of search. FIRN_UI_API is the address of the search API.",
    )
    serve = parser.add_subparsers(required=True, metavar="serve").add_parser(
        "serve", help="serve the pages until stopped"
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    serve.add_argument("--port", type=int, default=PORT, help="port to listen on (default %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
