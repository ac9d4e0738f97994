"""A real S3 server on this machine: SeaweedFS, from the environment's own `weed`.

    with S3Server.start() as server:
        store = open_store(server.settings())  # a fresh prefix each time

It needs no pytest (fixtures are in `tests/servers/fixtures.py`), is ready when `start` returns (3 to 5 s), and ends
with whoever started it, also when that is killed.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from reconciler.objectstore.settings import Credentials, Secret, StoreSettings
from tests.servers.ports import TWIN, free_ports

BUCKET: Final = "reconciler"
REGION: Final = "us-east-1"
_SOCKETS: Final = "/tmp"  # noqa: S108 - where the server puts them, whatever TMPDIR says
_READY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05
_STARTS: Final = 3
"""Between looking for a free port and using it somebody else may take it."""

IDENTITIES: Final = {
    "admin": ["Admin", "Read", "Write", "List", "Tagging"],
    "successor": ["Admin", "Read", "Write", "List", "Tagging"],
    "reader": ["Read", "List"],
    "unlisted": ["Read", "Write"],
    "nobody": [],
}
"""Who may do what."""


class _StartError(Exception):
    """The server ended instead of getting ready."""


@dataclass
class S3Server:
    """A running server with one bucket; every user takes a prefix of its own."""

    endpoint: str
    folder: Path
    guard: subprocess.Popen[bytes]

    @classmethod
    def start(cls) -> S3Server:
        """Start one and wait until an object can be put."""
        for attempt in range(_STARTS):
            server = _started()
            try:
                server._wait_until_ready()
            except _StartError:
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
        return f"s3://{BUCKET}/{name or 'store'}-{secrets.token_hex(6)}"

    def settings(
        self, name: str = "", *, url: str | None = None, identity: str = "admin", endpoint: str | None = None
    ) -> StoreSettings:
        """Return settings of a fresh location (or of `url`), complete: they need no environment."""
        return StoreSettings(
            url or self.url(name),
            region=REGION,
            endpoint=endpoint or self.endpoint,
            credentials=credentials_of(identity),
        )

    def environ(self, identity: str = "admin", *, endpoint: str | None = None) -> dict[str, str]:
        """Return the AWS environment that reaches this server, for commands and locations in manifests."""
        credentials = credentials_of(identity)
        return {
            "AWS_ACCESS_KEY_ID": credentials.access_key,
            "AWS_SECRET_ACCESS_KEY": credentials.secret_key.text,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL_S3": endpoint or self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def versioned(self, name: str = "") -> str:
        """Return a fresh location in a bucket that keeps versions."""
        bucket = f"kept-{secrets.token_hex(6)}"
        client = self.client()
        client.create_bucket(Bucket=bucket)
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        return f"s3://{bucket}/{name or 'store'}"

    def client(self, identity: str = "admin") -> Any:
        """Return a plain boto3 client, without retries: what tests look beneath with."""
        credentials = credentials_of(identity)
        session = boto3.session.Session(
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key.text,
            region_name=REGION,
        )
        config = Config(
            s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30
        )
        return session.client("s3", endpoint_url=self.endpoint, config=config)

    def _wait_until_ready(self) -> None:
        """Wait until an object can be put: the port answers earlier, and so does making a bucket."""
        client = self.client()
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                client.create_bucket(Bucket=BUCKET)
            except client.exceptions.BucketAlreadyExists:
                pass
            except (BotoCoreError, ClientError) as error:
                self._look_again(deadline, error)
                continue
            try:
                client.put_object(Bucket=BUCKET, Key="ready", Body=b"an empty one needs no volume")
            except (BotoCoreError, ClientError) as error:
                self._look_again(deadline, error)
                continue
            return

    def _look_again(self, deadline: float, error: Exception) -> None:
        if self.guard.poll() is not None or time.monotonic() > deadline:
            message = f"no S3 server at {self.endpoint}: {error}"
            raise _StartError(message) from error
        time.sleep(_LOOK_SECONDS)


def credentials_of(identity: str) -> Credentials:
    """Return the keys of one of the `IDENTITIES`."""
    return Credentials(f"{identity.upper()}-ACCESS-KEY", Secret(f"{identity}-secret-key"))


def _started() -> S3Server:
    folder = Path(tempfile.mkdtemp(prefix="weed-"))
    (folder / "data").mkdir()
    identities = folder / "identities.json"
    identities.write_text(json.dumps({"identities": [_identity(name) for name in IDENTITIES]}))
    ports = free_ports(4)
    (folder / "leftovers").write_text("\n".join(_sockets(ports)))
    s3, master, volume, filer = ports
    command = [
        *(str(Path(sys.executable).with_name("weed")), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-dir={folder / 'data'}", "-master.telemetry=false", "-master.heartbeatInterval=100ms"),
        *("-master.volumeSizeLimitMB=256", "-volume.max=200"),
        *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
        *("-s3", f"-s3.port={s3}", f"-s3.config={identities}", "-s3.autoCreateBucket=false"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"),  # else two servers want the same port
    ]
    guard = subprocess.Popen(
        [sys.executable, "-S", str(Path(__file__).with_name("guard.py")), str(folder), *command],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    return S3Server(f"http://127.0.0.1:{s3}", folder, guard)


def _sockets(ports: list[int]) -> list[str]:
    """Return where it puts its Unix sockets, whatever the temporary folder is; it leaves them there."""
    parts = ("filer", "s3", "master", "volume")
    return [
        *(f"{_SOCKETS}/seaweedfs-{part}-{port}.sock" for part in parts for port in ports),
        *(f"{_SOCKETS}/seaweedfs-{part}-grpc-{port + TWIN}.sock" for part in parts for port in ports),
    ]


def _identity(name: str) -> dict[str, object]:
    credentials = credentials_of(name)
    keys = {"accessKey": credentials.access_key, "secretKey": credentials.secret_key.text}
    return {"name": name, "credentials": [keys], "actions": IDENTITIES[name]}
