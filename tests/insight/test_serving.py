"""The real command on a real socket: no client holds a connection, or delays the end of the server, forever."""

import re
import signal
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection

import pytest

pytestmark = pytest.mark.slow

# A shell in the background hands on an ignored SIGINT, so the server's process begins with Python's own handler.
SHORT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from acda.insight import serving
serving.HEADERS_SECONDS = serving.BODY_SECONDS = serving.ANSWER_SECONDS = 1
from acda.cli import main
sys.exit(main(["explore", "--model", "fresh layer", "--port", "0", "--no-browser"]))
"""
HALF = b"POST /api/look?model=fresh+layer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nhalf"
WHOLE = b"GET /api/start HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def serve(source):
    process = subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    line = process.stdout.readline()
    return process, ("127.0.0.1", int(re.match(r"http://127.0.0.1:(\d+)/", line).group(1)))


@pytest.fixture(scope="module")
def hurried():
    """A server whose limits are one second."""
    process, address = serve(SHORT)
    yield address
    process.terminate()
    assert process.communicate(timeout=30)[1].count("Traceback") == 0


def ended(connection):
    """Whether the server closes within the time that a busy machine may need."""
    connection.settimeout(30)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ", HALF])
def test_half_a_request_is_not_waited_for(sent, hurried):
    with socket.create_connection(hurried) as connection:
        connection.sendall(sent)
        assert ended(connection)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nX: ", HALF, WHOLE + b"GET / HTTP/1.1\r\nX: "])
def test_a_byte_now_and_then_makes_no_difference(sent, hurried):
    with socket.create_connection(hurried) as connection:
        connection.sendall(sent)
        for _ in range(60):
            time.sleep(0.5)
            try:
                connection.sendall(b"x")
            except (BrokenPipeError, ConnectionResetError):
                return
    pytest.fail("the server still waits")


def test_requests_one_after_another_have_their_time_each(hurried):
    connection = HTTPConnection(*hurried, timeout=30)
    connection.connect()
    one = connection.sock
    for _ in range(3):
        connection.request("GET", "/api/start")
        assert connection.getresponse().read().startswith(b"{")
        time.sleep(0.7)
    assert connection.sock is one
    connection.close()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("sent", [HALF, b"GET / HT"])
def test_the_end_does_not_wait_for_uploads(times, sent):
    process, address = serve(SHORT.replace("= 1", "= 1000"))
    with socket.create_connection(address) as half:
        half.sendall(sent)
        with socket.create_connection(address) as connection:  # so that the half is known to have arrived
            connection.sendall(WHOLE)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        errors = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert errors == "acda explore: stopped.\n"
