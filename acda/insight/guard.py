"""Access control of the server: only the page that it serves is answered, and uploads are limited in size."""

import re
from ipaddress import ip_address
from typing import Any

from acda.support.extras import need

need("fastapi", "explore")
from fastapi import HTTPException, Request  # noqa: E402  after need, which names the extra
from fastapi.responses import JSONResponse, Response  # noqa: E402

MOST_BYTES = 30_000_000
# A request's Host: a name or an address, and a port.
HOST = re.compile(r"([a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


async def only_this_page(request: Request, answer: Any, hosts: list[str]) -> Response:
    """Refuse requests of other pages, by the origin that browsers send, and forbid other pages to embed this one.

    Links to the page itself are allowed. Requests by a foreign host name that points to this machine are refused.
    """
    own = {None, f"http://{request.headers.get('host')}"}
    followed = request.method == "GET" and request.url.path == "/"
    foreign = request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and not followed
    if request.headers.get("origin") not in own or foreign or not _is_ours(request.headers.get("host"), hosts):
        return JSONResponse({"detail": "this is only for the page that is served here."}, status_code=403)
    response: Response = await answer(request)
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


async def body_of(request: Request) -> bytes:
    """What was uploaded, up to a limit that is kept while it arrives."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            most = f"{MOST_BYTES // 1_000_000} MB"
            raise HTTPException(413, f"the file has more than {most}. Make it smaller, or try: acda explore FILE")
    return bytes(body)


def _is_ours(host: str | None, hosts: list[str]) -> bool:
    """Whether a request uses one of this machine's names, or an address, which no DNS entry can redirect.

    host: the header itself, because what is parsed from a malformed one may be the server's own address
    """
    parts = HOST.fullmatch((host or "").lower())
    if parts is None:
        return False
    name = parts[1].rstrip(".")
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return name in hosts
    return True
