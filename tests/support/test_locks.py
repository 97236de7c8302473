"""A folder has one holder; the lock ends with its process, and forked processes do not keep it."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from acda.support import locks
from acda.support.locks import locked

HOLD = """
import os, pathlib, sys, time
from acda.support.locks import locked
with locked(pathlib.Path(sys.argv[1]), "a training"):
    if "fork" in sys.argv and not os.fork():
        print(os.getpid(), flush=True)
        time.sleep(60)
    if "fork" not in sys.argv:
        print("held", flush=True)
    time.sleep(60)
"""


def holder(folder, *more):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), *more], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return process, process.stdout.readline().strip()


def test_the_second_is_refused_and_told_who_holds_it(tmp_path):
    with locked(tmp_path / "run", "a training"):
        message = f"run is in use by a training: process {os.getpid()} on {socket.gethostname()}, since 20"
        with pytest.raises(ValueError, match=message), locked(tmp_path / "run", "a training"):
            pass
    with locked(tmp_path / "run", "a training"):
        pass


@pytest.mark.slow
def test_a_kill_releases_it(tmp_path):
    process, _ = holder(tmp_path)
    with pytest.raises(ValueError, match=f"process {process.pid} on"), locked(tmp_path, "a training"):
        pass
    process.kill()
    process.wait()
    with locked(tmp_path, "a training"):
        pass


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_keep_it(tmp_path):
    process, child = holder(tmp_path, "fork")
    process.kill()
    process.wait()
    try:
        with locked(tmp_path, "a training"):
            os.kill(int(child), 0)  # it is still there
    finally:
        os.kill(int(child), signal.SIGKILL)
        process.stdout.close()


def test_where_there_are_no_locks_it_goes_on_and_says_so(tmp_path, monkeypatch, capsys):
    def unsupported(file):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks, "_lock", unsupported)
    with locked(tmp_path, "a training"):
        assert "cannot be locked" in capsys.readouterr().err
    assert time.strftime("%Y") in (tmp_path / locks.NAME).read_text()
