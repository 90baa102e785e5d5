"""PostgreSQL from the machine's own packages: a cluster of its own in the state folder, trusted on loopback
only."""

import os
import pwd
import shlex
import shutil
import signal
import subprocess
from functools import lru_cache
from pathlib import Path

from infra.local.ports import LOOPBACK
from infra.local.prerequisites import Missing
from infra.local.service import Launch, Service, Site, host_port

USER = "firn"
DATABASE = "firn"
PACKAGED = Path("/usr/lib/postgresql")
SYSTEM_USER = "postgres"
PROGRAMS = ("postgres", "initdb", "pg_isready")
PROBE_TIMEOUT_S = 5


@lru_cache(maxsize=1)
def program_folder() -> Path | None:
    """The folder with the server's programs: of PATH, else of the newest packaged version; None where there
    is none."""
    on_path = shutil.which("initdb")
    packaged = sorted(PACKAGED.glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    candidates = [*([Path(on_path).resolve().parent] if on_path else []), *packaged]
    return next((folder for folder in candidates if all((folder / name).exists() for name in PROGRAMS)), None)


def _missing() -> list[Missing]:
    missing = []
    if program_folder() is None:
        missing.append(
            Missing("PostgreSQL's server programs (postgres, initdb, pg_isready)", package="postgresql")
        )
    elif os.geteuid() == 0:
        try:
            pwd.getpwnam(SYSTEM_USER)
        except KeyError:
            missing.append(
                Missing(f"the user `{SYSTEM_USER}` (PostgreSQL refuses to run as root)", package="postgresql")
            )
        if not shutil.which("setpriv"):
            missing.append(
                Missing("`setpriv`, to run PostgreSQL as another user than root", package="util-linux")
            )
    return missing


def _as_server_user() -> tuple[str, ...]:
    if os.geteuid() != 0:
        return ()
    # setpriv becomes the server, where runuser would stay as its parent: the noted pid is the server's own.
    return (
        "setpriv",
        f"--reuid={SYSTEM_USER}",
        f"--regid={SYSTEM_USER}",
        "--init-groups",
        "--inh-caps=-all",
        "--",
    )


def _prepare(site: Site) -> Launch:
    folder = program_folder()
    assert folder is not None, "checked by `missing` before"
    data = site.folder / "data"
    fresh = not (site.folder / "initialised").exists()
    if fresh:
        shutil.rmtree(data, ignore_errors=True)  # left half made; it cannot hold anything yet
    data.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() == 0:
        user = pwd.getpwnam(SYSTEM_USER)
        os.chown(data, user.pw_uid, user.pw_gid)
    options = {
        "listen_addresses": LOOPBACK,
        "port": str(site.port),
        "unix_socket_directories": "",
        "max_connections": "100",
        # Its changes can be read as a stream.
        "wal_level": "logical",
        "log_line_prefix": "%m [%p] ",
    }
    settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    # The data folder is named through an open file: folders above it may be closed to the server's user (as
    # pytest's temporary folders are when root runs the tests), and an open folder needs no way through them.
    here = "/proc/self/fd/9" if Path("/proc/self/fd").exists() else str(data)
    enter = (f"exec 9<{shlex.quote(str(data))}", "cd /")
    return Launch(
        command=(*_as_server_user(), str(folder / "postgres"), "-D", here, *settings),
        address=f"postgresql+psycopg://{USER}@{LOOPBACK}:{site.port}/{DATABASE}",
        folder=site.folder,
        environment={"LC_ALL": "C.UTF-8", "TZ": "UTC"},
        steps=(*enter, *(_initialise(folder, here, site.folder / "initialised") if fresh else ())),
    )


def _initialise(folder: Path, here: str, marker: Path) -> tuple[str, ...]:
    """Makes the cluster and its database. The marker says that this went through to the end."""
    initdb = (
        *_as_server_user(),
        str(folder / "initdb"),
        "-D",
        here,
        "--username",
        USER,
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
    )
    single = (*_as_server_user(), str(folder / "postgres"), "--single", "-D", here, "postgres")
    return (
        shlex.join(initdb),
        f"echo 'CREATE DATABASE {DATABASE}' | {shlex.join(single)}",
        shlex.join(("touch", str(marker))),
    )


def _probe(address: str) -> str | None:
    folder = program_folder()
    if folder is None:
        return "pg_isready is missing"
    host, port = host_port(address)
    command = (
        str(folder / "pg_isready"),
        "--quiet",
        "--host",
        host,
        "--port",
        str(port),
        "--timeout",
        str(PROBE_TIMEOUT_S),
    )
    code = subprocess.run(
        command,
        check=False,
        timeout=2 * PROBE_TIMEOUT_S,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ).returncode
    return (
        None
        if code == 0
        else {1: "it refuses connections for now", 2: "no answer"}.get(code, f"pg_isready exits with {code}")
    )


# SIGINT is PostgreSQL's fast shutdown: clients are disconnected. SIGTERM would wait for them to leave.
SERVICE = Service(
    name="postgres",
    prepare=_prepare,
    probe=_probe,
    missing=_missing,
    ready_timeout_s=60.0,
    polite=signal.SIGINT,
)
