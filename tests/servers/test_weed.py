"""The server that other tests rely on: ready when it says so, and gone with whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.weed import BUCKET, S3Server
from tests.waiting import until

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
STARTER = """
import sys
from tests.servers.weed import S3Server
server = S3Server.start()
print(server.guard.pid, server.folder, flush=True)
sys.stdin.read()
"""


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_keeps_what_it_is_given(s3_server: S3Server) -> None:
    client = s3_server.client()
    client.put_object(Bucket=BUCKET, Key="weed/one", Body=b"1")
    assert client.get_object(Bucket=BUCKET, Key="weed/one")["Body"].read() == b"1"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_whoever_started_it(how: signal.Signals) -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert starter.stdout is not None
    guard, folder = starter.stdout.readline().decode().split()
    assert is_alive(int(guard))
    starter.send_signal(how)
    starter.communicate()
    until(lambda: not Path(folder).exists(), "the server outlived its starter", seconds=20)
