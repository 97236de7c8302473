"""acda explore: the filters of a network under the pointer, in a browser."""

import socket
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Any

from acda.cli.arguments import Weights, arg
from acda.support.devices import Device

# Every address of the machine.
EVERYWHERE = ("0.0.0.0", "::")


def explore(
    photo: Annotated[Path | None, arg(metavar="[PHOTO]", help_behavior_hint="(optional)")] = None,
    /,
    model: Weights = "denoiser",
    port: Annotated[int, arg(metavar="PORT")] = 8017,
    host: Annotated[str, arg(metavar="ADDRESS")] = "127.0.0.1",
    browser: bool = True,
    device: Device = "auto",
) -> None:
    """Open a page in the browser that shows the filter of the place under the pointer. Ctrl-C ends it.

    Args:
        photo: the first photo; others can be dropped on the page.
        model: the name of weights or of a fresh network, a run, or a file of weights.
        port: the port of the page; 0 for any free one.
        host: address to serve on; this machine alone unless given.
        browser: open the page in the browser.
        device: what to compute on; auto is the first of cuda, mps and cpu that is available.
    """
    if not 0 <= port < 65536:
        raise ValueError(f"--port needs to be from 0 to 65535; got {port}.")
    family, place = _place(host, port)
    from acda.insight.server import create_app
    from acda.insight.serving import server_of

    # asyncio answers without delay only on sockets that say that they are TCP's.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(place)
        except OSError as error:
            raise OSError(f"{host}:{port} cannot be used ({error.strerror}). Give another --port, or 0.") from error
        port = listener.getsockname()[1]
        app = create_app(photo, model, _names(host), device)
        listener.listen(128)  # from here on a browser can connect, and waits
        name = socket.gethostname() if host in EVERYWHERE else f"[{host}]" if ":" in host else host
        address = f"http://{name}:{port}/"
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if browser:
            threading.Timer(0.5, webbrowser.open, [address]).start()
        server_of(app).run(sockets=[listener])


def _place(host: str, port: int) -> tuple[int, Any]:
    """The kind of address that a host has, and what a socket takes of it."""
    try:
        if not host:
            raise ValueError("an empty one would be every address of the machine")
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, ValueError) as error:
        wanted = "--host needs an address of this machine, 127.0.0.1 for itself alone or 0.0.0.0 for its whole network"
        raise ValueError(f"{wanted}; got {host!r} ({error}).") from error
    return family, place


def _names(host: str) -> list[str]:
    """Host names that the page accepts, so that another site's name cannot be made to point here."""
    names = [host, "localhost"]
    return names if host in ("localhost", "127.0.0.1") else [*names, socket.gethostname(), socket.getfqdn()]
