"""Clients for S3: credentials, retries, error translation, and pyarrow's file system.

The process that opens a store resolves missing settings through boto3. Executors receive region, endpoint, path style
and current credentials (`Clients.resolve_settings`), and read no environment.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypedDict
from urllib.parse import urlsplit

from reconciler.errors import (
    MendFirstError,
    ReconcilerError,
    RetryableError,
    StoreRefusedError,
    UserError,
    find_root_cause,
)
from reconciler.objectstore.accounts import load_aws_credentials
from reconciler.objectstore.base import StoreOperation
from reconciler.objectstore.settings import BucketLocation, Credentials, Secret, StoreSettings
from reconciler.objectstore.wrappers import log_attempt
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.retry import Backoff
from reconciler.runtime.text import to_one_line

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials
    from botocore.exceptions import BotoCoreError, ClientError
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CopySourceTypeDef
    from pyarrow.fs import FileSystem

# ruff: noqa: PLC0415 - boto3 takes 0.2 s to import


_RIGHTS: Final[dict[StoreOperation, str]] = {
    "reach": "s3:ListBucket",
    "read": "s3:GetObject (and s3:ListBucket: without it a missing object is denied, too)",
    "write": "s3:PutObject (and kms:GenerateDataKey, kms:Decrypt where a key is named)",
    "copy": "s3:GetObject on the source and s3:PutObject on the target",
    "list": "s3:ListBucket on the bucket",
    "delete": "s3:DeleteObject",
}
_RERUN: Final = "Nothing that was acknowledged is lost. Run the same command again."
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
_WRONG_REGION: Final = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "301", "307", "IllegalLocationConstraintException"}
    | {"AuthorizationHeaderMalformed"}
)
_TOO_LARGE: Final = frozenset({"EntityTooLarge", "MaxSizeExceeded", "413"})
_FULL: Final = frozenset({"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "507"})
_SERVER_ERROR: Final = 500
_ANSWER_KEYS: Final = frozenset({"ETag", "LastModified", "Size", "UploadId", "CopyPartResult", "ContentLength"})


@contextmanager
def translate_s3_errors(doing: StoreOperation, url: str) -> Iterator[None]:
    """Translate S3 errors; `doing` completes "cannot … URL"."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise translate_error(error, doing, url) from error
    except (KeyError, ResponseParserError) as error:
        if isinstance(error, KeyError) and error.args[0] not in _ANSWER_KEYS:
            raise
        why = f"its answer has no {error.args[0]}" if isinstance(error, KeyError) else "its answer is not S3's"
        message = f"cannot {doing} {url}: the server is not an S3 store: {why}"
        raise StoreRefusedError(message, hint="Correct `endpoint`, or AWS_ENDPOINT_URL_S3.") from error
    except ValueError as error:
        message = f"cannot {doing} {url}: {error}"
        raise StoreRefusedError(
            message, hint="Correct `endpoint` and `region`, or the environment they come from."
        ) from error


def translate_error(error: ClientError | BotoCoreError, doing: StoreOperation, url: str) -> ReconcilerError:
    """Return the error for a failed request."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError):
        return error_from_answer(error, doing, url)
    return error_from_botocore(error, doing, url)


def read_error_code(error: ClientError) -> str:
    """Return S3's error code, or the HTTP status."""
    return to_one_line(str(error.response.get("Error", {}).get("Code", "") or read_http_status(error)))


def read_http_status(error: ClientError) -> int:
    """Return the HTTP status of an error response."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def error_from_answer(error: ClientError, doing: StoreOperation, url: str) -> ReconcilerError:
    """Return the error for an error response."""
    code, where = read_error_code(error), f"cannot {doing} {url}"
    if code in {"NoSuchBucket", "404"}:
        return StoreRefusedError(
            f"{where}: there is no such bucket", hint="Create it, or correct its name; reconciler never creates one."
        )
    if code in _DENIED:
        return StoreRefusedError(f"{where}: access denied", hint=f"Allow these credentials {_RIGHTS[doing]}.")
    if code in _EXPIRED:
        return MendFirstError(f"{where}: the credentials have expired", hint=f"Renew them (log in again). {_RERUN}")
    if code in _UNKNOWN:
        return StoreRefusedError(
            f"{where}: the credentials are not accepted ({code})",
            hint="Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_PROFILE.",
        )
    if code in _SKEWED:
        return MendFirstError(
            f"{where}: the clock of this machine is off by more than the store allows",
            hint=f"Correct the clock (chronyc, timedatectl). {_RERUN}",
        )
    if code in _BUSY:
        return RetryableError(f"{where}: the store is throttling ({code})", hint=f"Wait a little. {_RERUN}")
    if code in _IN_THE_WAY:
        return RetryableError(f"{where}: other writers interfere ({code})", hint=f"Wait a little. {_RERUN}")
    if code in _WRONG_REGION:
        return _wrong_region_error(error, where)
    if code in _TOO_LARGE:
        return StoreRefusedError(f"{where}: the object is too large for this store", hint="Write less at once.")
    if code in _FULL:
        return MendFirstError(f"{where}: the store is full", hint=f"Free some space or raise its quota. {_RERUN}")
    return _other_error(error, doing, where)


def _wrong_region_error(error: ClientError, where: str) -> ReconcilerError:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    details: dict[str, object] = {**error.response.get("Error", {})}
    region = details.get("Region") or headers.get("x-amz-bucket-region")
    location = f"region {to_one_line(str(region))}" if region else "another region"
    return StoreRefusedError(
        f"{where}: the bucket is in {location}", hint="Set `region` of the location, or AWS_REGION."
    )


def _other_error(error: ClientError, doing: StoreOperation, where: str) -> ReconcilerError:
    code = read_error_code(error)
    reason = to_one_line(str(error.response.get("Error", {}).get("Message", "") or "no reason was reported")).rstrip(
        ". "
    )
    if code.startswith("KMS."):
        return StoreRefusedError(
            f"{where}: {reason} ({code})", hint="Check the key, and that these credentials may use it."
        )
    if read_http_status(error) >= _SERVER_ERROR or code in {"RequestTimeout", "InternalError"}:
        return RetryableError(f"{where}: the store failed: {reason} ({code})", hint=_RERUN)
    return StoreRefusedError(
        f"{where}: {reason} ({code})", hint=f"Check the location, and that it allows {_RIGHTS[doing]}."
    )


def error_from_botocore(error: BotoCoreError, doing: StoreOperation, url: str) -> ReconcilerError:
    """Return the error for a request without a response."""
    from botocore import exceptions

    where, reason = f"cannot {doing} {url}", to_one_line(str(error)).rstrip(". ")
    match error:
        case exceptions.NoCredentialsError():
            return StoreRefusedError(
                f"{where}: no credentials were found",
                hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in (aws sso login).",
            )
        case (
            exceptions.PartialCredentialsError()
            | exceptions.CredentialRetrievalError()
            | exceptions.TokenRetrievalError()
            | exceptions.SSOError()
            | exceptions.ProfileNotFound()
            | exceptions.ConfigNotFound()
            | exceptions.ConfigParseError()
        ):
            hint = "Correct the AWS profile, role or environment, or log in again."
            return StoreRefusedError(f"{where}: {reason}", hint=hint)
        case exceptions.SSLError():
            hint = "Check the endpoint's certificate; for a private authority set AWS_CA_BUNDLE."
            return StoreRefusedError(f"{where}: {reason}", hint=hint)
        case exceptions.ConnectTimeoutError() | exceptions.ReadTimeoutError():
            return RetryableError(f"{where}: no answer in time ({reason})", hint=f"Check the network. {_RERUN}")
        case exceptions.HTTPClientError() | exceptions.ConnectionError() | exceptions.IncompleteReadError():
            hint = f"Check the endpoint, its name and the network. {_RERUN}"
            return RetryableError(f"{where}: {_describe_connection_failure(error)}", hint=hint)
        case exceptions.ParamValidationError() | exceptions.InvalidRegionError():
            return StoreRefusedError(f"{where}: {reason}", hint="Correct the location.")
        case _:
            return RetryableError(f"{where}: {reason}", hint=_RERUN)


def _describe_connection_failure(error: BotoCoreError) -> str:
    cause = find_root_cause(error)
    if isinstance(cause, OSError) and cause.strerror:
        endpoint = urlsplit(str(getattr(error, "kwargs", {}).get("endpoint_url", "")))
        return f"{cause.strerror.lower()}{f' ({endpoint.scheme}://{endpoint.netloc})' if endpoint.netloc else ''}"
    return to_one_line(str(error)).rstrip(". ")


_EVENT: Final = "needs-retry.s3"
_BOTOCORE: Final = "retry-config-s3"
_LONGEST_S: Final = 20.0
_BUSY_STATUS: Final = frozenset({429, 503})


def set_busy_pause(client: S3Client, initial_ms: int, *, attempts: int) -> None:
    """Make a client pause `initial_ms` after the first busy response; later pauses double. botocore limits retries."""
    from botocore.retries.standard import register_retry_handler

    events: Any = client.meta.events
    events.unregister(_EVENT, unique_id=_BOTOCORE)
    decide: Callable[..., float | None] = register_retry_handler(client, attempts).needs_retry
    events.unregister(_EVENT, unique_id=_BOTOCORE)

    def needs_retry(**event: Any) -> float | None:
        pause_s = decide(**event)
        is_busy = event.get("response") is not None and event["response"][0].status_code in _BUSY_STATUS
        return pause_s if pause_s is None or not is_busy else compute_busy_pause(event["attempts"], initial_ms)

    events.register(_EVENT, needs_retry)


def compute_busy_pause(attempt: int, initial_ms: int) -> float:
    """Return the pause in seconds after busy response `attempt` (from 1)."""
    return Backoff(initial_ms / 1000, _LONGEST_S, spread=0.5).compute_pause(attempt)


class ObjectName(TypedDict):
    """Bucket and key, as arguments of boto3."""

    Bucket: str
    Key: str


def build_object_name(place: BucketLocation, key: str) -> ObjectName:
    """Return bucket and S3 key of a store's object."""
    return {"Bucket": place.bucket, "Key": place.build_object_name(key)}


def build_copy_source(source: ObjectName) -> CopySourceTypeDef:
    """Return boto3's argument for the source of a copy."""
    return {"Bucket": source["Bucket"], "Key": source["Key"]}


POOL: Final = 64
ATTEMPTS: Final = 5
_MORE_ATTEMPTS: Final = 8
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 60
CONDITIONAL_CONNECT_SECONDS: Final = 5
CONDITIONAL_READ_SECONDS: Final = 7
_NO_PROFILE: Final = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


@dataclass(frozen=True, slots=True)
class ClientPair:
    """A process's clients with and without retries."""

    retrying_client: S3Client
    single_try_client: S3Client
    settings: StoreSettings
    """Settings without temporary credentials."""
    credentials: Any


class Clients:
    """Opens the clients of a location on first use, once per process. Thread-safe."""

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._cached_pair: ClientPair | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()

    @property
    def retrying_client(self) -> S3Client:
        """Client for reads and repeatable writes."""
        return self._open().retrying_client

    @property
    def single_try_client(self) -> S3Client:
        """Client without retries, for conditional writes and their verification."""
        return self._open().single_try_client

    def can_share_access(self, other: Clients) -> bool:
        """Return whether the server can copy between both: endpoint and credentials are equal."""
        ours, theirs = self._open().settings, other._open().settings
        return (ours.endpoint, ours.credentials, ours.account) == (theirs.endpoint, theirs.credentials, theirs.account)

    def resolve_settings(self) -> StoreSettings:
        """Return the complete settings with the current credentials."""
        opened = self._open()
        if self.settings.credentials is not None or opened.credentials is None:
            return opened.settings
        with translate_s3_errors("reach", self.settings.url):
            return replace(opened.settings, credentials=_read_credentials(opened.credentials.get_frozen_credentials()))

    def _open(self) -> ClientPair:
        if self._process != os.getpid():  # A forked process must not share sockets and locks with its parent.
            self._cached_pair, self._lock, self._process = None, threading.Lock(), os.getpid()
        if self._cached_pair is not None:
            return self._cached_pair
        with self._lock, translate_s3_errors("reach", self.settings.url):
            if self._cached_pair is None:
                self._cached_pair = _open_pair(self.settings)
            return self._cached_pair


def _open_pair(settings: StoreSettings) -> ClientPair:
    import boto3.session
    import botocore.session

    account = None if settings.credentials is not None else settings.account
    core = botocore.session.Session(
        _NO_PROFILE if settings.credentials is not None else None, profile=None if account is None else account.profile
    )
    if account is not None:
        credentials = load_aws_credentials(account, settings.region)
        core.register_component("credential_provider", _LoadedCredentials(credentials))
    session = boto3.session.Session(botocore_session=core)
    # boto3's session replaces the loader, so the cached loader is registered afterwards.
    core.register_component("data_loader", _load_descriptions())
    draft = _open_client(session, settings, attempts=1)
    complete = replace(settings, region=draft.meta.region_name, endpoint=settings.endpoint or _custom_endpoint(draft))
    if complete.force_path_style is None:
        style = _s3_options(draft).get("addressing_style", "path" if complete.endpoint is not None else "virtual")
        complete = replace(complete, force_path_style=style == "path")
    return ClientPair(
        _open_client(
            session, complete, attempts=ATTEMPTS if complete.patience.initial_backoff_ms is None else _MORE_ATTEMPTS
        ),
        _open_client(session, complete, attempts=1),
        complete,
        session.get_credentials() if settings.credentials is None else None,
    )


@dataclass(frozen=True, slots=True)
class _LoadedCredentials:
    """Stands in a botocore session for the chain of credential providers."""

    credentials: Any

    def load_credentials(self) -> Any:
        """Return the account's credentials."""
        return self.credentials


@cache
def _load_descriptions() -> Any:
    import botocore.loaders

    return botocore.loaders.Loader()


def _open_client(session: Any, settings: StoreSettings, *, attempts: int) -> S3Client:
    from botocore.config import Config
    from botocore.handlers import add_expect_header

    options: dict[str, Any] = {}
    # A signed payload needs no checksum in a trailer, which some stores reject.
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
        **_key_options(settings.credentials),
    )
    # This handler adds `Expect: 100-continue`, which costs a round trip.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    client.meta.events.register_first("needs-retry.s3", log_attempt)
    for operation in ("PutObject", "UploadPart"):
        client.meta.events.register(f"provide-client-params.s3.{operation}", _add_digest)
    if patience.idle_ms is not None:
        _drop_idle_connections(client, patience.idle_ms / 1000)
    if patience.initial_backoff_ms is not None and not is_conditional:
        set_busy_pause(client, patience.initial_backoff_ms, attempts=attempts)
    return client


def _drop_idle_connections(client: S3Client, idle_s: float) -> None:
    from botocore.awsrequest import (
        AWSHTTPConnection,
        AWSHTTPConnectionPool,
        AWSHTTPSConnection,
        AWSHTTPSConnectionPool,
    )

    def build_connection_class(kind: Any) -> Any:
        class Connection(kind):  # type: ignore[misc]
            _used_s = 0.0

            def request(self, *args: Any, **options: Any) -> Any:
                self._used_s = monotonic()
                return super().request(*args, **options)

            def getresponse(self) -> Any:
                response = super().getresponse()
                self._used_s = monotonic()
                return response

            @property
            def is_connected(self) -> bool:
                return monotonic() - self._used_s <= idle_s and bool(super().is_connected)

        return Connection

    def build_pool_class(kind: Any, connection: Any) -> Any:
        return type(kind.__name__, (kind,), {"ConnectionCls": build_connection_class(connection)})

    session: Any = client._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001 - botocore has no option for it
    session._manager.pool_classes_by_scheme = {  # noqa: SLF001 - as above
        "http": build_pool_class(AWSHTTPConnectionPool, AWSHTTPConnection),
        "https": build_pool_class(AWSHTTPSConnectionPool, AWSHTTPSConnection),
    }


def _add_digest(params: dict[str, Any], **_: object) -> None:
    """Add a digest to an upload. Without one, some stores accept a truncated body from a killed sender."""
    digest = hashlib.md5(params["Body"], usedforsecurity=False).digest()
    params["ContentMD5"] = base64.b64encode(digest).decode()


def _key_options(credentials: Credentials | None) -> dict[str, str]:
    if credentials is None:
        return {}
    keys = {"aws_access_key_id": credentials.access_key, "aws_secret_access_key": credentials.secret_key.text}
    return keys if credentials.token is None else {**keys, "aws_session_token": credentials.token.text}


def _read_credentials(frozen: ReadOnlyCredentials) -> Credentials:
    token = None if frozen.token is None else Secret(frozen.token)
    return Credentials(str(frozen.access_key), Secret(str(frozen.secret_key)), token)


def _custom_endpoint(client: S3Client) -> str | None:
    endpoint = client.meta.endpoint_url
    return None if (urlsplit(endpoint).hostname or "").endswith(_AWS) else endpoint


def _s3_options(client: S3Client) -> dict[str, Any]:
    options: dict[str, Any] = client.meta.config.s3 or {}  # type: ignore[attr-defined]  # set by Config at run time
    return options


def open_arrow_filesystem(settings: StoreSettings) -> tuple[FileSystem, str]:
    """Return pyarrow's file system and the location's path in it.

    Settings are complete, because pyarrow reads environment and profiles differently.
    """
    from pyarrow.fs import LocalFileSystem, S3FileSystem

    match settings.scheme:
        case "file":
            return LocalFileSystem(), settings.url_path
        case "s3":
            place = BucketLocation.from_settings(settings)
            resolved = Clients(settings).resolve_settings()
            return S3FileSystem(**_build_options(resolved)), f"{place.bucket}/{place.prefix}".rstrip("/")
        case "gs" | "az":
            from reconciler.objectstore.cloud_client import CloudClients

            place = BucketLocation.from_settings(settings)
            return CloudClients(settings).open_arrow_filesystem(), f"{place.bucket}/{place.prefix}".rstrip("/")
        case _:
            hint = "Use a file://, s3://, gs:// or az:// location."
            raise UserError(f"pyarrow cannot read {settings.url}", hint=hint)


def _build_options(settings: StoreSettings) -> dict[str, Any]:
    options: dict[str, Any] = {"region": settings.region, "force_virtual_addressing": not settings.force_path_style}
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
