"""Hostile requests to the explorer: it keeps running, never answers 500, and serves no files of the machine."""

import atexit
import re
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from http.client import HTTPConnection
from random import Random

import pytest

from tests.campaigns.frame import Campaign

COMMAND = [sys.executable, "-m", "acda", "explore", "--model", "fresh layer", "--port", "0", "--no-browser"]
PATHS = [
    *("/", "/api/start", "/api/look?model=fresh+layer", "/api/look", "/api/look?model=/etc/passwd"),
    *("/../../../../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/page.html"),
    *("/api/photo/../../etc/passwd", "/api/photo/%00", "/api/map/x?layer=0&kind=-1", "/api/map/x?layer=0&kind=²"),
    *("/api/place/x?layer=0&x=nan&y=inf", "/api/place/x?layer=0&x=1e999&y=1&out=99999999999999999999&into=-1"),
    *("/openapi.json", "/docs", "http://elsewhere.example/", "*", "/%ff%fe", "/" + "a" * 5000, "/?" + "a=b&" * 3000),
]
PATIENCE = 300  # seconds, for a busy machine
METHODS = [*["GET", "POST"] * 5, "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "NONSENSE", "get"]
HEADERS = [
    *("Host: 127.0.0.1", "Host: elsewhere.example", "Host:", "Host: 127.0.0.1\r\nHost: other", "Content-Length: 5"),
    *(
        "Content-Length: -1",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
    ),
    *(
        "Origin: http://elsewhere.example",
        "Origin: null",
        "Upgrade: websocket\r\nConnection: Upgrade",
        "Range: bytes=0-9",
    ),
    *("Cookie: " + "x" * 9000, "X-Odd: \xff\xfe", " folded: yes", "no colon", "Connection: close", "Sec-Fetch-Site: ?"),
]


@cache
def server() -> tuple[subprocess.Popen[str], tuple[str, int]]:
    """One server for all cases: it has to survive them all."""
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    atexit.register(process.kill)
    assert process.stdout is not None
    found = re.match(r"http://127.0.0.1:(\d+)/", process.stdout.readline())
    assert found is not None, "the server did not start"
    return process, ("127.0.0.1", int(found[1]))


def request(random: Random) -> bytes:
    lines = [f"{random.choice(METHODS)} {random.choice(PATHS)} HTTP/{random.choice(['1.1', '1.1', '1.0', '9.9'])}"]
    if random.random() < 0.8:
        lines.append(HEADERS[0])
    lines += random.sample(HEADERS, random.randrange(4))
    body = random.choice([b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", random.randbytes(3000)])
    sent = bytearray("\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + body)
    if random.random() < 0.2:
        sent[random.randrange(len(sent))] = random.randrange(256)
    return bytes(sent)


def try_case(random: Random) -> str:
    process, address = server()
    sent = request(random)
    cut = random.random() < 0.2
    answer = b""
    with socket.create_connection(address, timeout=PATIENCE) as connection, suppress(ConnectionError):
        connection.sendall(sent[: random.randrange(len(sent))] if cut else sent)
        connection.settimeout(0.3 if cut else 1)
        with suppress(TimeoutError):
            while part := connection.recv(65536):
                answer += part
    assert not re.match(rb"HTTP/1\.1 50[^3]", answer), f"{answer[:60]!r} for {sent[:200]!r}"
    assert b"root:" not in answer, f"a file was served for {sent[:200]!r}"
    assert process.poll() is None, f"the server ended after {sent[:200]!r}"
    healthy = HTTPConnection(*address, timeout=PATIENCE)
    healthy.request("GET", "/api/start")
    assert healthy.getresponse().status == 200, f"no answer after {sent[:200]!r}"
    healthy.close()
    return "half-sent" if cut else (answer[9:12].decode() or "no answer")


@pytest.mark.campaign
def test_no_request_ends_the_server(run_campaign):
    run_campaign(Campaign("explorer", try_case))


if __name__ == "__main__":
    Campaign("explorer", try_case).main()
