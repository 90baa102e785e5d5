"""A proxy that loses answers: the server has done the work, the client only sees a connection that ends."""

import asyncio
import threading
from dataclasses import dataclass, field

END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said and the client did not hear."""

    status: int
    body: bytes


@dataclass(slots=True)
class DroppingProxy:
    """Forwards requests to a server of this machine; the first answer to each Idempotency-Key is kept in
    `lost` instead of being sent."""

    server_port: int
    port: int = 0
    lost: dict[str, Answer] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "DroppingProxy":
        started = threading.Event()

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            self._loop.run_forever()
            server.close()
            self._loop.close()

        self._thread = threading.Thread(target=run)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        assert self._thread is not None
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection."""
        request, headers = await _read_message(reader)
        answer = await self._forward(request)
        key = headers.get("idempotency-key")
        if key is None or key in self.lost:
            writer.write(answer)
            await writer.drain()
        else:
            head, _, body = answer.partition(END_OF_HEAD)
            self.lost[key] = Answer(int(head.split(b" ", 2)[1]), body)
        writer.close()

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        head, _, body = request.partition(END_OF_HEAD)
        writer.write(head + b"\r\nConnection: close" + END_OF_HEAD + body)
        answer = await reader.read(-1)
        writer.close()
        return answer


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, str]]:
    """A whole HTTP message without its Connection header, and its headers by their names in lower case."""
    head = (await reader.readuntil(END_OF_HEAD)).decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    kept = [line for line in head if not line.lower().startswith("connection:")]
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return "\r\n".join(kept).encode("latin-1") + END_OF_HEAD + body, headers
