"""Clients of one S3 location: its bucket and prefix, credentials, retries, and pyarrow's file system.

botocore's own pauses after a refusal begin at up to a second; a store that is only busy for a moment need not wait so
long. Whether a request is tried again, and how often, stays botocore's to say.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypedDict
from urllib.parse import urlsplit

from reconciler.errors import UserError
from reconciler.objectstore.s3_faults import s3_faults
from reconciler.objectstore.settings import Credentials, Place, Secret, StoreSettings
from reconciler.objectstore.wrappers import note_attempt
from reconciler.runtime.retry import Backoff

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CopySourceTypeDef
    from pyarrow.fs import FileSystem


_EVENT: Final = "needs-retry.s3"
_BOTOCORE: Final = "retry-config-s3"
"""What botocore calls its own handler."""
_LONGEST_S: Final = 20.0
_BUSY: Final = frozenset({429, 503})


def pause_from(client: S3Client, initial_ms: int, *, attempts: int) -> None:
    """Let a client pause `initial_ms` after the first refusal, and twice as long after each that follows."""
    from botocore.retries.standard import register_retry_handler  # noqa: PLC0415 - only users of S3 pay

    events: Any = client.meta.events
    events.unregister(_EVENT, unique_id=_BOTOCORE)
    decided: Callable[..., float | None] = register_retry_handler(client, attempts).needs_retry
    events.unregister(_EVENT, unique_id=_BOTOCORE)

    def needs_retry(**answered: Any) -> float | None:
        pause_s = decided(**answered)
        is_busy = answered.get("response") is not None and answered["response"][0].status_code in _BUSY
        return pause_s if pause_s is None or not is_busy else pause_after(answered["attempts"], initial_ms)

    events.register(_EVENT, needs_retry)


def pause_after(attempt: int, initial_ms: int) -> float:
    """Return the seconds to pause after a try that was refused, counted from 1: at least half of what doubling says."""
    return Backoff(initial_ms / 1000, _LONGEST_S, spread=0.5).after(attempt)


# Objects in the words of S3's calls.


class ObjectName(TypedDict):
    """An object as S3 names it."""

    Bucket: str
    Key: str


def named(place: Place, key: str) -> ObjectName:
    """Return the object a key of a place is."""
    return {"Bucket": place.bucket, "Key": place.name_of(key)}


def copied_from(source: ObjectName) -> CopySourceTypeDef:
    """Return an object as what is copied."""
    return {"Bucket": source["Bucket"], "Key": source["Key"]}


# Clients of one S3 location, all made by boto3 of one resolved setting.
#
# What a location leaves open, boto3 finds out where every AWS tool does: environment (`AWS_REGION`,
# `AWS_ENDPOINT_URL_S3`, `AWS_PROFILE`, …), profile, container and instance role. It does that once, in the process that
# opens the store; this is the edge where the AWS environment is read, and nothing above reads it. What travels to other
# processes (`Clients.resolved`) names region, endpoint, path style and credentials, so that executors and pyarrow reach
# the same place as we do and ask no environment of their own. Lent credentials that are refreshed are refreshed here:
# they are taken anew for every journey.


POOL: Final = 64
"""Connections a client keeps: more threads than this wait for one another."""
ATTEMPTS: Final = 5
_MORE_ATTEMPTS: Final = 8
"""Where pauses begin short: from 100 ms they come to as many seconds in all."""
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 60
CONDITIONAL_CONNECT_SECONDS: Final = 5
CONDITIONAL_READ_SECONDS: Final = 7
"""Short, for what is written under a condition is small, and may be written under a lease (see `swap.py`)."""
_NO_PROFILE: Final = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
"""What botocore looks for where settings are complete: not even a profile, which may not exist there."""
_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


@dataclass(frozen=True, slots=True)
class Opened:
    """The two clients of a process, and what they were made of."""

    steady: S3Client
    """Tries again by itself: for reads, and for writes that may be done twice."""
    once: S3Client
    """Never tries again by itself: for conditional writes, and for reading them back."""
    settings: StoreSettings
    """Complete but for credentials that are refreshed."""
    credentials: Any


class Clients:
    """Opens the clients of a location when they are first needed, once a process. Safe to share between threads."""

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._opened: Opened | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()

    @property
    def steady(self) -> S3Client:
        """The client that tries again by itself."""
        return self._open().steady

    @property
    def once(self) -> S3Client:
        """The client that never does."""
        return self._open().once

    def reach_the_same_as(self, other: Clients) -> bool:
        """Tell whether ours may be asked for what the other's reach: one endpoint, one set of credentials."""
        ours, theirs = self._open().settings, other._open().settings
        return (ours.endpoint, ours.credentials) == (theirs.endpoint, theirs.credentials)

    def resolved(self) -> StoreSettings:
        """Return complete settings, with the credentials as they are now; without, where none were found."""
        opened = self._open()
        if self.settings.credentials is not None or opened.credentials is None:
            return opened.settings
        with s3_faults("reach", self.settings.url):
            return replace(opened.settings, credentials=_frozen(opened.credentials.get_frozen_credentials()))

    def _open(self) -> Opened:
        if self._process != os.getpid():  # a fork must not share its parent's sockets, nor a lock somebody held
            self._opened, self._lock, self._process = None, threading.Lock(), os.getpid()
        if self._opened is not None:
            return self._opened
        with self._lock, s3_faults("reach", self.settings.url):
            if self._opened is None:
                self._opened = _opened(self.settings)
            return self._opened


def _opened(settings: StoreSettings) -> Opened:
    import boto3.session  # noqa: PLC0415 - a fifth of a second that only users of S3 pay
    import botocore.session  # noqa: PLC0415 - as above

    core = botocore.session.Session(_NO_PROFILE if settings.credentials is not None else None)
    session = boto3.session.Session(botocore_session=core)
    # Not before: a session of boto3 adds a folder to its reader, and ours is shared by every session.
    core.register_component("data_loader", _descriptions())
    draft = _client(session, settings, attempts=1)  # which alone knows what environment and profile say
    found = replace(settings, region=draft.meta.region_name, endpoint=settings.endpoint or _foreign(draft))
    if found.force_path_style is None:
        style = _s3_options(draft).get("addressing_style", "path" if found.endpoint is not None else "virtual")
        found = replace(found, force_path_style=style == "path")
    return Opened(
        _client(session, found, attempts=ATTEMPTS if found.patience.initial_backoff_ms is None else _MORE_ATTEMPTS),
        _client(session, found, attempts=1),
        found,
        session.get_credentials() if settings.credentials is None else None,
    )


@cache
def _descriptions() -> Any:
    """Return botocore's reader of its descriptions of services, which keeps them: a tenth of a second a store."""
    import botocore.loaders  # noqa: PLC0415 - as above

    return botocore.loaders.Loader()


def _client(session: Any, settings: StoreSettings, *, attempts: int) -> S3Client:
    from botocore.config import Config  # noqa: PLC0415 - as above
    from botocore.handlers import add_expect_header  # noqa: PLC0415 - as above

    options: dict[str, Any] = {}
    # Bodies are signed, and go with their length: no trailer, which not every store understands.
    options["s3"] = {"payload_signing_enabled": True}
    options |= {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    if settings.credentials is not None:
        options["ignore_configured_endpoint_urls"] = True
    if settings.force_path_style is not None:
        options["s3"]["addressing_style"] = "path" if settings.force_path_style else "virtual"
    is_conditional, patience = attempts == 1, settings.patience
    wanted_ms = patience.register_ms if is_conditional else patience.upload_ms
    usual = CONDITIONAL_READ_SECONDS if is_conditional else _READ_SECONDS
    config = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=CONDITIONAL_CONNECT_SECONDS if is_conditional else _CONNECT_SECONDS,
        read_timeout=usual if wanted_ms is None else wanted_ms / 1000,
        max_pool_connections=POOL,
        tcp_keepalive=True,
        **options,
    )
    client: S3Client = session.client(
        "s3",
        region_name=settings.region,
        endpoint_url=settings.endpoint,
        config=config,
        verify=settings.trust_file,
        **_keys(settings.credentials),
    )
    # Asking first whether a body is welcome costs every small write a round trip.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    client.meta.events.register_first("needs-retry.s3", note_attempt)
    for operation in ("PutObject", "UploadPart"):
        client.meta.events.register(f"provide-client-params.s3.{operation}", _with_digest)
    if patience.idle_ms is not None:
        _let_go_of_idle(client, patience.idle_ms / 1000)
    if patience.initial_backoff_ms is not None and not is_conditional:
        pause_from(client, patience.initial_backoff_ms, attempts=attempts)
    return client


def _let_go_of_idle(client: S3Client, idle_s: float) -> None:
    """Let a client open a new connection where the last request over one was longer ago: servers drop what is idle."""
    from botocore.awsrequest import (  # noqa: PLC0415 - as above
        AWSHTTPConnection,
        AWSHTTPConnectionPool,
        AWSHTTPSConnection,
        AWSHTTPSConnectionPool,
    )

    def fresh(kind: Any) -> Any:
        class Connection(kind):  # type: ignore[misc]
            _used_s = 0.0

            def request(self, *given: Any, **named: Any) -> Any:
                self._used_s = monotonic()
                return super().request(*given, **named)

            def getresponse(self) -> Any:
                found = super().getresponse()
                self._used_s = monotonic()
                return found

            @property
            def is_connected(self) -> bool:
                return monotonic() - self._used_s <= idle_s and bool(super().is_connected)

        return Connection

    def pool(kind: Any, connection: Any) -> Any:
        return type(kind.__name__, (kind,), {"ConnectionCls": fresh(connection)})

    session: Any = client._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001 - botocore has no option for it
    session._manager.pool_classes_by_scheme = {  # noqa: SLF001 - as above
        "http": pool(AWSHTTPConnectionPool, AWSHTTPConnection),
        "https": pool(AWSHTTPSConnectionPool, AWSHTTPSConnection),
    }


def _with_digest(params: dict[str, Any], **_: object) -> None:
    """Let the store compare a body with its digest: some keep what is left of one whose sender was killed."""
    digest = hashlib.md5(params["Body"], usedforsecurity=False).digest()
    params["ContentMD5"] = base64.b64encode(digest).decode()


def _keys(credentials: Credentials | None) -> dict[str, str]:
    if credentials is None:
        return {}
    keys = {"aws_access_key_id": credentials.access_key, "aws_secret_access_key": credentials.secret_key.text}
    return keys if credentials.token is None else {**keys, "aws_session_token": credentials.token.text}


def _frozen(found: ReadOnlyCredentials) -> Credentials:
    token = None if found.token is None else Secret(found.token)
    return Credentials(str(found.access_key), Secret(str(found.secret_key)), token)


def _foreign(client: S3Client) -> str | None:
    """Return the endpoint that environment or profile name; `None` for AWS's own."""
    endpoint = client.meta.endpoint_url
    return None if (urlsplit(endpoint).hostname or "").endswith(_AWS) else endpoint


def _s3_options(client: S3Client) -> dict[str, Any]:
    options: dict[str, Any] = client.meta.config.s3 or {}  # type: ignore[attr-defined]  # set by Config at run time
    return options


# pyarrow's file system for a location, made of the same resolved setting as our own clients.
#
# pyarrow reads `AWS_ENDPOINT_URL`, not `AWS_ENDPOINT_URL_S3`, and profiles in its own way: it is told everything.


def arrow_filesystem(settings: StoreSettings) -> tuple[FileSystem, str]:
    """Return a file system of pyarrow, and the path that the location has in it.

    Raises:
        UserError: pyarrow cannot reach such a location.
    """
    from pyarrow.fs import LocalFileSystem, S3FileSystem  # noqa: PLC0415 - only who asks for it pays

    match settings.scheme:
        case "file":
            return LocalFileSystem(), settings.rest
        case "s3":
            place = Place.of(settings)
            resolved = Clients(settings).resolved()
            return S3FileSystem(**_options(resolved)), f"{place.bucket}/{place.prefix}".rstrip("/")
        case "gs" | "az":
            from reconciler.objectstore.cloud_client import CloudClients  # noqa: PLC0415 - only who asks for it pays

            place = Place.of(settings)
            return CloudClients(settings).arrow_filesystem(), f"{place.bucket}/{place.prefix}".rstrip("/")
        case _:
            hint = "Use a file://, s3://, gs:// or az:// location."
            raise UserError(f"pyarrow cannot read {settings.url}", hint=hint)


def _options(settings: StoreSettings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "region": settings.region,
        "force_virtual_addressing": not settings.force_path_style,
    }
    if settings.credentials is not None:
        token = settings.credentials.token
        options |= {
            "access_key": settings.credentials.access_key,
            "secret_key": settings.credentials.secret_key.text,
            "session_token": None if token is None else token.text,
        }
    if settings.trust_file is not None:
        options["tls_ca_file_path"] = settings.trust_file
    if settings.endpoint is not None:
        endpoint = urlsplit(settings.endpoint)
        options |= {"endpoint_override": endpoint.netloc + endpoint.path.rstrip("/"), "scheme": endpoint.scheme}
    return options
