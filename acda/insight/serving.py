"""Serve the page with time limits: no client can hold a connection, or delay the end of the server, forever.

uvicorn waits without limit for the rest of a request. Here each part of a request has a time limit.
"""

import asyncio
from typing import Any

from acda.support.extras import need

need("uvicorn", "explore")
import h11  # noqa: E402  after need, which names the extra
import uvicorn  # noqa: E402
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: E402

# From the first byte to the end of the headers, of the body, and until an answer is fetched.
HEADERS_SECONDS, BODY_SECONDS, ANSWER_SECONDS = 10, 120, 120
KEEP_ALIVE_SECONDS, SHUTDOWN_SECONDS = 5, 3
# A browser opens six; each of these may hold an upload.
MOST_CONNECTIONS = 32


class Bounded(H11Protocol):
    """One connection, whose client has so many seconds for each part of a request, however it divides them."""

    _waiting_for: Any = None
    _limit: asyncio.TimerHandle | None = None
    _fetching: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Begin to count when a new part of a request is awaited; more of the same part changes nothing."""
        # Between two requests the time of uvicorn's own keep-alive counts, until the first byte of the second.
        idle = self.timeout_keep_alive_task is not None
        state = None if idle else self.conn.their_state
        if state == self._waiting_for:
            return
        self._waiting_for = state
        if self._limit is not None:
            self._limit.cancel()
        limits: dict[Any, float] = {h11.IDLE: HEADERS_SECONDS, h11.SEND_BODY: BODY_SECONDS}
        seconds = limits.get(state)
        self._limit = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._fetching = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._fetching is not None:
            self._fetching.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._limit, self._fetching):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends: what is being answered may be finished, what has only half arrived may not."""
        super().shutdown()
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.transport.abort()


def server_of(app: Any) -> uvicorn.Server:
    """A server for an application, with these limits."""
    config = uvicorn.Config(
        app,
        http=Bounded,
        ws="none",
        lifespan="off",  # a second Ctrl-C would end it with a traceback
        log_level="error",  # requests of unknown clients are not logged
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        limit_concurrency=MOST_CONNECTIONS,
    )
    return uvicorn.Server(config)
