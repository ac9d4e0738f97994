"""Clients of one S3 location: its bucket and prefix, credentials, retries, errors, and pyarrow's file system.

botocore's own pauses after a refusal begin at up to a second; a store that is only busy for a moment need not wait so
long. Whether a request is tried again, and how often, stays botocore's to say.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypedDict
from urllib.parse import urlsplit

from reconciler.errors import MendFirstError, ReconcilerError, RetryableError, StoreRefusedError, UserError
from reconciler.objectstore.base import Doing
from reconciler.objectstore.settings import Credentials, Place, Secret, StoreSettings
from reconciler.objectstore.wrappers import note_attempt
from reconciler.runtime.retry import Backoff
from reconciler.runtime.text import one_line

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials
    from botocore.exceptions import BotoCoreError, ClientError
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CopySourceTypeDef
    from pyarrow.fs import FileSystem


# Errors of S3 and of the connection to it, as errors of ours.


_RIGHTS: Final[dict[Doing, str]] = {
    "reach": "s3:ListBucket",
    "read": "s3:GetObject (and s3:ListBucket: without it a missing object is denied, too)",
    "write": "s3:PutObject (and kms:GenerateDataKey, kms:Decrypt where a key is named)",
    "copy": "s3:GetObject on the source and s3:PutObject on the target",
    "list": "s3:ListBucket on the bucket",
    "delete": "s3:DeleteObject",
}
_AGAIN: Final = "Nothing that was acknowledged is lost. Run the same command again."
_DENIED: Final = frozenset({"AccessDenied", "Forbidden", "403", "AllAccessDisabled", "AccountProblem"})
_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
_UNKNOWN: Final = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity", "UnrecognizedClientException"}
)
_SKEWED: Final = frozenset({"RequestTimeTooSkewed", "RequestInTheFuture"})
_BUSY: Final = frozenset(
    {"SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests"}
    | {"429", "503", "KMS.ThrottlingException"}
)
_IN_THE_WAY: Final = frozenset({"ConditionalRequestConflict", "OperationAborted", "409"})
_ELSEWHERE: Final = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "301", "307", "IllegalLocationConstraintException"}
    | {"AuthorizationHeaderMalformed"}
)
_TOO_LARGE: Final = frozenset({"EntityTooLarge", "MaxSizeExceeded", "413"})
_FULL: Final = frozenset({"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "507"})
_SERVER_ERROR: Final = 500
_ANSWERED: Final = frozenset({"ETag", "LastModified", "Size", "UploadId", "CopyPartResult", "ContentLength"})
"""What each answer of S3 has that is asked for it."""


@contextmanager
def s3_faults(doing: Doing, url: str) -> Iterator[None]:
    """Raise our error for what goes wrong with S3 inside; `doing` completes "cannot … URL"."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only users of S3 pay
    from botocore.parsers import ResponseParserError  # noqa: PLC0415 - as above

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise told(error, doing, url) from error
    except (KeyError, ResponseParserError) as error:
        if isinstance(error, KeyError) and error.args[0] not in _ANSWERED:
            raise
        why = f"its answer has no {error.args[0]}" if isinstance(error, KeyError) else "its answer is not S3's"
        message = f"cannot {doing} {url}: what answers is not an S3 store: {why}"
        raise StoreRefusedError(message, hint="Correct `endpoint`, or AWS_ENDPOINT_URL_S3.") from error
    except ValueError as error:  # how botocore refuses an endpoint or a region that cannot be
        message = f"cannot {doing} {url}: {error}"
        raise StoreRefusedError(
            message, hint="Correct `endpoint` and `region`, or the environment they come from."
        ) from error


def told(error: ClientError | BotoCoreError, doing: Doing, url: str) -> ReconcilerError:
    """Return the error that says what to do, be it an answer or that there was none."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - as above

    if isinstance(error, ClientError):
        return from_answer(error, doing, url)
    return from_client(error, doing, url)


def code_of(error: ClientError) -> str:
    """Return S3's own word for an error; a HEAD has no body, so it is the status there."""
    return one_line(str(error.response.get("Error", {}).get("Code", "") or status_of(error)))


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def from_answer(error: ClientError, doing: Doing, url: str) -> ReconcilerError:
    """Return the error that says what to do about an answer of the store."""
    code, where = code_of(error), f"cannot {doing} {url}"
    if code in {"NoSuchBucket", "404"}:
        return StoreRefusedError(
            f"{where}: there is no such bucket", hint="Create it, or correct its name; reconciler never creates one."
        )
    if code in _DENIED:
        return StoreRefusedError(f"{where}: access denied", hint=f"Allow these credentials {_RIGHTS[doing]}.")
    if code in _EXPIRED:
        return MendFirstError(f"{where}: the credentials have expired", hint=f"Renew them (log in again). {_AGAIN}")
    if code in _UNKNOWN:
        return StoreRefusedError(
            f"{where}: the credentials are not accepted ({code})",
            hint="Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_PROFILE.",
        )
    if code in _SKEWED:
        return MendFirstError(
            f"{where}: the clock of this machine is off by more than the store allows",
            hint=f"Set it right (chronyc, timedatectl). {_AGAIN}",
        )
    if code in _BUSY:
        return RetryableError(f"{where}: the store is throttling ({code})", hint=f"Wait a little. {_AGAIN}")
    if code in _IN_THE_WAY:
        return RetryableError(f"{where}: other writers are in the way ({code})", hint=f"Wait a little. {_AGAIN}")
    if code in _ELSEWHERE:
        return _elsewhere(error, where)
    if code in _TOO_LARGE:
        return StoreRefusedError(f"{where}: the object is too large for this store", hint="Write less at once.")
    if code in _FULL:
        return MendFirstError(f"{where}: the store is full", hint=f"Free some space or raise its quota. {_AGAIN}")
    return _other(error, doing, where)


def _elsewhere(error: ClientError, where: str) -> ReconcilerError:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    details: dict[str, object] = {**error.response.get("Error", {})}
    region = details.get("Region") or headers.get("x-amz-bucket-region")
    told = f"region {one_line(str(region))}" if region else "another region"
    return StoreRefusedError(f"{where}: the bucket is in {told}", hint="Set `region` of the location, or AWS_REGION.")


def _other(error: ClientError, doing: Doing, where: str) -> ReconcilerError:
    code = code_of(error)
    said = one_line(str(error.response.get("Error", {}).get("Message", "") or "no reason given")).rstrip(". ")
    if code.startswith("KMS."):
        return StoreRefusedError(
            f"{where}: {said} ({code})", hint="Check the key, and that these credentials may use it."
        )
    if status_of(error) >= _SERVER_ERROR or code in {"RequestTimeout", "InternalError"}:
        return RetryableError(f"{where}: the store failed: {said} ({code})", hint=_AGAIN)
    return StoreRefusedError(
        f"{where}: {said} ({code})", hint=f"Check the location, and that it allows {_RIGHTS[doing]}."
    )


def from_client(error: BotoCoreError, doing: Doing, url: str) -> ReconcilerError:
    """Return the error that says what to do where no answer came."""
    from botocore import exceptions as found  # noqa: PLC0415 - only users of S3 pay

    where, said = f"cannot {doing} {url}", one_line(str(error)).rstrip(". ")
    match error:
        case found.NoCredentialsError():
            return StoreRefusedError(
                f"{where}: no credentials were found",
                hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in (aws sso login).",
            )
        case (
            found.PartialCredentialsError()
            | found.CredentialRetrievalError()
            | found.TokenRetrievalError()
            | found.SSOError()
            | found.ProfileNotFound()
            | found.ConfigNotFound()
            | found.ConfigParseError()
        ):
            hint = "Correct the AWS profile or environment, or log in again."
            return StoreRefusedError(f"{where}: {said}", hint=hint)
        case found.SSLError():
            hint = "Check the endpoint's certificate; AWS_CA_BUNDLE names authorities of your own."
            return StoreRefusedError(f"{where}: {said}", hint=hint)
        case found.ConnectTimeoutError() | found.ReadTimeoutError():
            return RetryableError(f"{where}: no answer in time ({said})", hint=f"Check the network. {_AGAIN}")
        case found.HTTPClientError() | found.ConnectionError() | found.IncompleteReadError():
            hint = f"Check the endpoint, its name and the network. {_AGAIN}"
            return RetryableError(f"{where}: {_unreachable(error)}", hint=hint)
        case found.ParamValidationError() | found.InvalidRegionError():
            return StoreRefusedError(f"{where}: {said}", hint="Correct the location.")
        case _:
            return RetryableError(f"{where}: {said}", hint=_AGAIN)


def _unreachable(error: BotoCoreError) -> str:
    """Say why nothing came, in the words of the innermost cause."""
    cause: BaseException = error
    while (cause.__cause__ or cause.__context__) is not None:
        cause = cause.__cause__ or cause.__context__ or cause
    if isinstance(cause, OSError) and cause.strerror:
        # The whole address of the request names bucket and key, as what we say of it does: its host is enough.
        asked = urlsplit(str(getattr(error, "kwargs", {}).get("endpoint_url", "")))
        return f"{cause.strerror.lower()}{f' ({asked.scheme}://{asked.netloc})' if asked.netloc else ''}"
    return one_line(str(error)).rstrip(". ")


# Clients.


_EVENT: Final = "needs-retry.s3"
_BOTOCORE: Final = "retry-config-s3"
"""What botocore calls its own handler."""
_LONGEST_S: Final = 20.0
_BUSY_STATUS: Final = frozenset({429, 503})


def pause_from(client: S3Client, initial_ms: int, *, attempts: int) -> None:
    """Let a client pause `initial_ms` after the first refusal, and twice as long after each that follows."""
    from botocore.retries.standard import register_retry_handler  # noqa: PLC0415 - only users of S3 pay

    events: Any = client.meta.events
    events.unregister(_EVENT, unique_id=_BOTOCORE)
    decided: Callable[..., float | None] = register_retry_handler(client, attempts).needs_retry
    events.unregister(_EVENT, unique_id=_BOTOCORE)

    def needs_retry(**answered: Any) -> float | None:
        pause_s = decided(**answered)
        is_busy = answered.get("response") is not None and answered["response"][0].status_code in _BUSY_STATUS
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
