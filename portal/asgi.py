"""The ASGI application that uvicorn serves: Django, and MCP beside it.

It lets go of waiting readers once the server is told to stop.
"""

import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import FrameType
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

_django = get_asgi_application()

MCP = "portal.mcp.server"

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


async def application(scope: Message, receive: Receive, send: Send) -> None:
    """Serve /mcp by the SDK, all other HTTP by Django, and the server's own start and stop."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    elif scope["type"] == "http" and scope["path"] in ("/mcp", "/mcp/"):
        from portal.mcp.server import ENDPOINT  # noqa: PLC0415  # megabytes that only agents need

        await ENDPOINT(scope, receive, send)
    else:
        await _django(scope, receive, send)


async def _live(receive: Receive, send: Send) -> None:
    from portal.listening import LISTENER  # noqa: PLC0415  # models are loaded only now

    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            _stop_at_once()
            LISTENER.start(within_s=0)  # who hears events is who knows whether the database can be reached
            await send({"type": "lifespan.startup.complete"})
        else:
            LISTENER.stop()
            if MCP in sys.modules:
                await sys.modules[MCP].ENDPOINT.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return


def _stop_at_once() -> None:
    """Wake all who wait for events when the server is asked to stop: open streams would keep it alive."""
    from portal.listening import LISTENER  # noqa: PLC0415  # models are loaded only now

    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def stop(signum: int, frame: FrameType | None, before: Any = before) -> None:
            # In a thread: the listener's lock may be held by the very code this signal interrupts.
            threading.Thread(target=LISTENER.stop, daemon=True).start()
            if callable(before):
                before(signum, frame)

        signal.signal(number, stop)
