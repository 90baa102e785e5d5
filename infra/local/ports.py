"""Free loopback ports, and who holds the occupied ones."""

import socket

import psutil

from lake.errors import PrerequisiteError

LOOPBACK = "127.0.0.1"
CONNECT_TIMEOUT_S = 1.0


def is_free(port: int) -> bool:
    """True where a server could listen on this loopback port now. Connections in TIME_WAIT do not count, as
    for servers."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def reserve_free() -> int:
    """A free port that the kernel gives to nobody else for about a minute.

    A port that is merely bound and released may become the source port of any connection of the machine
    before a slow JVM listens on it. One finished connection leaves it in TIME_WAIT: from then on only a
    server that names it (with SO_REUSEADDR) gets it.
    """
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((LOOPBACK, 0))
        server.listen(1)
        address = server.getsockname()
        with socket.socket() as client:
            client.connect(address)
            accepted, _ = server.accept()
            accepted.close()  # the server's side closes first, so that TIME_WAIT stays on this port
        return int(address[1])


def is_listening(port: int) -> bool:
    """True where something accepts connections on this loopback port."""
    with socket.socket() as client:
        client.settimeout(CONNECT_TIMEOUT_S)
        return client.connect_ex((LOOPBACK, port)) == 0


def owner(port: int) -> str | None:
    """`name (pid N)` of the process that listens on a port, None where the machine does not tell."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid
            ):
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return None
    return None


def choose(service: str, *, wanted: int | None, remembered: int | None) -> int:
    """The port for a service: the wanted one or an error, else the one it had before if still free, else a
    free one.

    Raises PrerequisiteError where the wanted port is occupied, naming its owner.
    """
    if wanted:
        if is_free(wanted):
            return wanted
        who = owner(wanted) or "another process"
        raise PrerequisiteError(
            f"port {wanted} on {LOOPBACK}, asked for by {service}, is occupied by {who}. Stop that process, "
            "or choose another port (0: any free one)"
        )
    if remembered and is_free(remembered):
        return remembered
    return reserve_free()
