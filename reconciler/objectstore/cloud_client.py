"""Clients for Google Cloud Storage or Azure: credentials, retries, error translation, and pyarrow's file system.

The process that opens a store reads settings from the cloud's environment; executors receive them. Without credentials
in the environment, each machine uses its own identity.
"""

from __future__ import annotations

import html
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from reconciler.errors import MendFirstError, ReconcilerError, RetryableError, StoreRefusedError, UserError
from reconciler.objectstore.accounts import GoogleTokens
from reconciler.objectstore.settings import BucketLocation, Secret, StoreSettings
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import to_one_line

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore
    from pyarrow.fs import FileSystem

    from reconciler.objectstore.base import StoreOperation

# ruff: noqa: PLC0415 - `obstore` is an optional dependency


# Error texts of `obstore` may contain signed URLs. Only their status, code, message and connection failure are shown.


_GOOGLE_RIGHTS: Final[dict[StoreOperation, str]] = {
    "reach": "storage.objects.list",
    "read": "storage.objects.get (and storage.objects.list: without it a missing object is denied, too)",
    "write": "storage.objects.create and storage.objects.delete (which replacing an object needs)",
    "copy": "storage.objects.get on the source, storage.objects.create and storage.objects.delete on the target",
    "list": "storage.objects.list on the bucket",
    "delete": "storage.objects.delete",
}
_AZURE_RIGHTS: Final = "the role Storage Blob Data Contributor on the container (Reader is enough to read and list)"
_RERUN: Final = "Nothing that was acknowledged is lost. Run the same command again."
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
_DENIED: Final = frozenset({"AuthorizationPermissionMismatch", "AccessDenied", "InsufficientAccountPermissions"})
_EXPIRED: Final = frozenset({"ExpiredToken", "AuthenticationTokenExpired"})
_BUSY_STATUSES: Final = frozenset({429, 503})
_PRECONDITION, _CONFLICT, _GONE, _TOO_LARGE, _FULL, _BEYOND = 412, 409, 404, 413, 507, 416
_SERVER_ERROR: Final = 500
_UNAUTHORIZED, _FORBIDDEN = 401, 403

_BEYOND_THE_END: Final = ("Wanted range starting at", "Failed to parse value for CONTENT_RANGE")
_STATUS: Final = re.compile(r"(?:status code: |\(code: )(\d{3})\b")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>|\"reason\": ?\"([^\"]{1,100})\"")
_MESSAGE: Final = re.compile(r"<Message>([^<]*?)(?:\nRequestId:[^<]*)?</Message>|\"message\": ?\"((?:[^\"\\]|\\.)*)\"")
_CAUSE: Final = re.compile(r"message: \"([^\"]{1,200})\"")
_SYSTEM: Final = re.compile(r"Os \{[^}]*message: \"([^\"]{1,200})\"")


@contextmanager
def translate_cloud_errors(doing: StoreOperation, url: str) -> Iterator[None]:
    """Translate errors of `obstore`; `doing` completes "cannot … URL"."""
    try:
        yield
    except ReconcilerError:
        raise
    except Exception as error:
        if not is_obstore_error(error):
            raise
        # `from error` would print a text that may contain a signed URL.
        raise translate_error(error, doing, url) from None


def is_obstore_error(error: Exception) -> bool:
    """Return whether `obstore` raised an error. Some of its errors are builtin exceptions."""
    from obstore.exceptions import BaseError

    return isinstance(error, BaseError | FileNotFoundError | NotImplementedError | ValueError)


def read_http_status(error: Exception) -> int:
    """Return the HTTP status of an error; 0 if the store did not answer."""
    match = _STATUS.search(str(error))
    return int(match[1]) if match else 0


def read_error_code(error: Exception) -> str:
    """Return the cloud's error code, or the HTTP status."""
    match = _CODE.search(_read_text(error))
    word = (match[1] or match[2]) if match else ""
    return to_one_line(word or str(read_http_status(error) or "no answer"))


def is_missing(error: Exception) -> bool:
    """Return whether the object is missing in an existing bucket."""
    if read_http_status(error) != _GONE and not isinstance(error, FileNotFoundError):
        return False
    return not _names_no_bucket(error)


def is_beyond_end(error: Exception) -> bool:
    """Return whether a range begins after the object's end."""
    return read_http_status(error) == _BEYOND or any(text in str(error) for text in _BEYOND_THE_END)


def is_condition_failed(error: Exception) -> bool:
    """Return whether a write's condition does not hold."""
    return (
        read_http_status(error) == _PRECONDITION or read_error_code(error) == "BlobAlreadyExists" or is_missing(error)
    )


def is_outcome_unknown(error: Exception) -> bool:
    """Return whether a request may have succeeded despite its error."""
    status = read_http_status(error)
    if status == 0:
        return "HTTP error: " in str(error) and not _is_certificate_error(error) and "builder error" not in str(error)
    return status in {_CONFLICT, *_BUSY_STATUSES, 408} or status >= _SERVER_ERROR


def translate_error(error: Exception, doing: StoreOperation, url: str) -> ReconcilerError:
    """Return the error for a failed request."""
    where, status, code = f"cannot {doing} {url}", read_http_status(error), read_error_code(error)
    is_azure = url.startswith("az:")
    noun = "container" if is_azure else "bucket"
    if "token request" in _read_text(error) or "GCP credential error" in _read_text(error):
        return _login_error(error, where, is_azure=is_azure)
    if _names_no_bucket(error) or status == _GONE:
        hint = "Create it, or correct its name; reconciler never creates one."
        return StoreRefusedError(f"{where}: there is no such {noun}", hint=hint)
    if status == 0:
        return _connection_error(error, where)
    if code in _EXPIRED:
        return MendFirstError(f"{where}: the credentials have expired", hint=f"Renew them (log in again). {_RERUN}")
    if status == _UNAUTHORIZED or (
        status == _FORBIDDEN and code.startswith(("Authentication", "AuthorizationFailure"))
    ):
        return StoreRefusedError(
            f"{where}: the credentials are not accepted ({code})", hint=_describe_credentials(is_azure=is_azure)
        )
    if status == _FORBIDDEN:
        rights = _AZURE_RIGHTS if is_azure else _GOOGLE_RIGHTS[doing]
        return StoreRefusedError(f"{where}: access denied", hint=f"Allow these credentials {rights}.")
    if status in _BUSY_STATUSES:
        return RetryableError(f"{where}: the store is throttling ({code})", hint=f"Wait a little. {_RERUN}")
    if status == _CONFLICT:
        return RetryableError(f"{where}: other writers interfere ({code})", hint=f"Wait a little. {_RERUN}")
    if status == _TOO_LARGE:
        return StoreRefusedError(f"{where}: the object is too large for this store", hint="Write less at once.")
    if status == _FULL:
        return MendFirstError(f"{where}: the store is full", hint=f"Free some space or raise its quota. {_RERUN}")
    if status >= _SERVER_ERROR:
        return RetryableError(f"{where}: the store failed: {_read_message(error)} ({code})", hint=_RERUN)
    return StoreRefusedError(f"{where}: {_read_message(error)} ({code})", hint="Check the location and its rights.")


def _names_no_bucket(error: Exception) -> bool:
    text = _read_text(error)
    if "The specified container does not exist" in text or "The specified bucket does not exist" in text:
        return True
    match = _CODE.search(text)
    return match is not None and (match[1] or match[2]) in _NO_BUCKET


def _login_error(error: Exception, where: str, *, is_azure: bool) -> ReconcilerError:
    status = read_http_status(error)
    if status in {400, _UNAUTHORIZED}:
        message = f"{where}: the credentials are not accepted ({status})"
    else:
        message = f"{where}: no credentials were found, and this machine's own identity gave none"
    return StoreRefusedError(message, hint=_describe_credentials(is_azure=is_azure))


def _describe_credentials(*, is_azure: bool) -> str:
    if is_azure:
        return (
            "Check AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or "
            "AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID; "
            "AZURE_USE_AZURE_CLI=true takes those of `az login`."
        )
    return "Check GOOGLE_APPLICATION_CREDENTIALS, or log in: gcloud auth application-default login."


def _connection_error(error: Exception, where: str) -> ReconcilerError:
    text = str(error)
    if _is_certificate_error(error):
        return StoreRefusedError(f"{where}: its certificate is not trusted", hint="Check the endpoint's certificate.")
    if "HTTP error: " not in text or "builder error" in text:
        reason = to_one_line(text.partition("\n")[0].partition(" error: ")[2] or "it cannot be reached")
        return StoreRefusedError(
            f"{where}: {reason.rstrip('. ')}", hint="Correct `endpoint`, or the environment it comes from."
        )
    if "kind: Timeout" in text or "TimedOut" in text:
        return RetryableError(f"{where}: no answer in time", hint=f"Check the network. {_RERUN}")
    cause = _SYSTEM.search(text) or _CAUSE.search(text)
    if cause is not None:
        why = to_one_line(cause[1]).lower()
    elif "dns error" in text:
        why = "its name is not known"
    else:
        why = "the connection broke off"
    return RetryableError(f"{where}: {why}", hint=f"Check the endpoint, its name and the network. {_RERUN}")


def _is_certificate_error(error: Exception) -> bool:
    return "invalid peer certificate" in str(error) or "InvalidCertificate" in str(error)


def _read_message(error: Exception) -> str:
    match = _MESSAGE.search(_read_text(error))
    message = html.unescape(match[1] or match[2] or "") if match else ""
    return to_one_line(message or "no reason was reported").rstrip(". ")[:300]


def _read_text(error: Exception) -> str:
    return str(error).partition("\n\nDebug source:")[0]


_EXTRAS: Final = {"gs": "gcs", "az": "azure"}
_STORAGES: Final = {"gs": "Google Cloud Storage", "az": "Azure Blob Storage"}


def check_installed(settings: StoreSettings) -> None:
    """Raise `UserError` if `obstore` is not installed."""
    if find_spec("obstore") is None:
        message = f"{settings.url}: {_STORAGES[settings.scheme]} needs obstore, which is not installed"
        raise UserError(message, hint=f"Install it: pip install 'stream-reconciler[{_EXTRAS[settings.scheme]}]'.")


_GOOGLE: Final = {
    "service_account_key": ("GOOGLE_SERVICE_ACCOUNT_KEY",),
    "application_credentials": (
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ),
    "bearer_token": ("GOOGLE_BEARER_TOKEN",),
}
_GOOGLE_EMULATOR: Final = "STORAGE_EMULATOR_HOST"
_EMULATOR_BEARER: Final = "emulator"
_AZURE: Final = {
    "account_name": ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"),
    "account_key": ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"),
    "sas_key": ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
    "endpoint": ("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_SERVICE_ENDPOINT"),
    "client_id": ("AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID"),
    "client_secret": ("AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET"),
    "tenant_id": ("AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID"),
    "authority_host": ("AZURE_AUTHORITY_HOST",),
    "msi_endpoint": ("MSI_ENDPOINT", "IDENTITY_ENDPOINT"),
    "federated_token_file": ("AZURE_FEDERATED_TOKEN_FILE",),
    "use_azure_cli": ("AZURE_USE_AZURE_CLI",),
}
_AZURE_CONNECTION: Final = "AZURE_STORAGE_CONNECTION_STRING"
_DEVELOPMENT: Final = {
    "account_name": "devstoreaccount1",
    "account_key": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "endpoint": "http://127.0.0.1:10000/devstoreaccount1",
}
_AZURE_KINDS: Final = (
    ("account_key", "access_key"),
    ("sas_key", "sas_token"),
    ("client_secret", "client_secret"),
    ("federated_token_file", "workload_identity"),
    ("use_azure_cli", "azure_cli"),
)
_NO: Final = frozenset({"0", "false", "off", "no", "n"})
_ARROW_PATIENCE: Final = timedelta(seconds=60)
"""Maximum duration of pyarrow's retries at Google (default: 15 minutes)."""
_GOOGLE_HOST: Final = "https://storage.googleapis.com"


def _google_options(settings: StoreSettings, environ: Mapping[str, str]) -> dict[str, str]:
    if settings.endpoint is None and (emulator := environ.get(_GOOGLE_EMULATOR)):
        return {"base_url": emulator if "://" in emulator else f"http://{emulator}", "bearer_token": _EMULATOR_BEARER}
    options = {} if settings.account is not None else _read_environment(_GOOGLE, environ)
    if (path := options.get("application_credentials")) is not None and "service_account_key" not in options:
        body = _read_credentials(path, settings.url)
        if '"service_account"' in body:
            del options["application_credentials"]
            options["service_account_key"] = body
    return options if settings.endpoint is None else {**options, "base_url": settings.endpoint.rstrip("/")}


def _azure_options(settings: StoreSettings, environ: Mapping[str, str]) -> dict[str, str]:
    text = environ.get(_AZURE_CONNECTION)
    options = _parse_connection(text) if text else _read_environment(_AZURE, environ)
    if settings.endpoint is not None:
        options["endpoint"] = settings.endpoint
        options.setdefault("account_name", _parse_account(settings.endpoint))
    if not options.get("account_name"):
        message = f"cannot reach {settings.url}: no storage account is named"
        raise UserError(
            message, hint=f"Set AZURE_STORAGE_ACCOUNT or {_AZURE_CONNECTION}, or `endpoint` of the location."
        )
    options.setdefault("endpoint", f"https://{options['account_name']}.blob.core.windows.net")
    if settings.account is not None:
        shared = {"account_name", "endpoint", "tenant_id", "authority_host", "federated_token_file", "msi_endpoint"}
        options = {key: value for key, value in options.items() if key in shared}
        options["client_id"] = settings.account.client_id or ""
    if options.get("use_azure_cli", "").lower() in _NO:
        del options["use_azure_cli"]
    kind = next((kind for key, kind in _AZURE_KINDS if key in options), None)
    return options if kind is None else {**options, "credential_type": kind}


def _read_environment(names: Mapping[str, tuple[str, ...]], environ: Mapping[str, str]) -> dict[str, str]:
    values = {key: next(filter(None, map(environ.get, candidates)), None) for key, candidates in names.items()}
    return {key: value for key, value in values.items() if value}


def _parse_connection(text: str) -> dict[str, str]:
    parts = {name.strip().lower(): value for name, _, value in (part.partition("=") for part in text.split(";"))}
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        return dict(_DEVELOPMENT)
    account = parts.get("accountname", "")
    suffix = parts.get("endpointsuffix") or "core.windows.net"
    endpoint = (
        parts.get("blobendpoint") or f"{parts.get('defaultendpointsprotocol') or 'https'}://{account}.blob.{suffix}"
    )
    if not account and not parts.get("blobendpoint"):
        hint = (
            "It has AccountName and AccountKey, or BlobEndpoint and SharedAccessSignature; its text is not shown here."
        )
        raise UserError(f"{_AZURE_CONNECTION} names neither an account nor an endpoint", hint=hint)
    options = {
        "account_name": account or _parse_account(endpoint),
        "account_key": parts.get("accountkey", ""),
        "sas_key": parts.get("sharedaccesssignature", "").removeprefix("?"),
        "endpoint": endpoint.rstrip("/"),
    }
    return {key: value for key, value in options.items() if value}


def _parse_account(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    return parts.path.strip("/").partition("/")[0] or (parts.hostname or "").partition(".")[0]


def _read_credentials(path: str, url: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
        message = f"cannot reach {url}: the credentials file {path} cannot be read: {why}"
        raise UserError(message, hint="Correct GOOGLE_APPLICATION_CREDENTIALS.") from error


POOL: Final = 64
ATTEMPTS: Final = 5
_MORE_ATTEMPTS: Final = 8
_FIRST_BACKOFF_MS: Final = 100
_LONGEST_BACKOFF_SECONDS: Final = 20.0
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 60
_WHOLE_SECONDS: Final = 600
_EXECUTOR_TOKEN_S: Final = 1800
"""Executors cannot renew a token. Half the life of Google's: two requests an hour, and half an hour for each task."""
CONDITIONAL_CONNECT_SECONDS: Final = 5
CONDITIONAL_READ_SECONDS: Final = 7


@dataclass(frozen=True, slots=True)
class ClientPair:
    """A process's clients with and without retries."""

    retrying_client: GCSStore | AzureStore
    single_try_client: GCSStore | AzureStore
    settings: StoreSettings
    tokens: GoogleTokens | None


class CloudClients:
    """Opens the clients of a location on first use, once per process."""

    def __init__(self, settings: StoreSettings) -> None:
        check_installed(settings)
        _check_settings(settings)
        self.settings = settings
        self._place = BucketLocation.from_settings(settings)
        self._cached_pair: ClientPair | None = None
        self._lock = threading.Lock()

    @property
    def retrying_client(self) -> GCSStore | AzureStore:
        """Client for reads and repeatable writes."""
        return self._open().retrying_client

    @property
    def single_try_client(self) -> GCSStore | AzureStore:
        """Client without retries, for conditional writes and their verification."""
        return self._open().single_try_client

    @property
    def endpoint(self) -> str:
        """URL of the server, without a bucket."""
        options = self._build_options()
        return options.get("base_url") or options.get("endpoint") or _GOOGLE_HOST

    def can_share_access(self, other: CloudClients) -> bool:
        """Return whether the server can copy between both: bucket and credentials are equal."""
        return (self.bucket, self.resolve_settings().cloud) == (other.bucket, other.resolve_settings().cloud)

    @property
    def bucket(self) -> tuple[str, str]:
        """Scheme, and bucket or container."""
        return self._place.scheme, self._place.bucket

    def resolve_settings(self) -> StoreSettings:
        """Return the complete settings with credentials, of a Google service account a token for half an hour."""
        opened = self._open()
        if opened.tokens is None:
            return opened.settings
        token = ("bearer_token", Secret(opened.tokens.get_token(for_s=_EXECUTOR_TOKEN_S).text))
        return replace(opened.settings, cloud=(*(opened.settings.cloud or ()), token), account=None)

    def open_arrow_filesystem(self) -> FileSystem:
        """Return pyarrow's file system. At Google, pyarrow searches credentials itself."""
        from pyarrow.fs import AzureFileSystem, GcsFileSystem

        options, endpoint = self._build_options(), urlsplit(self.endpoint)
        if self._place.scheme == "az":
            known = {"account_name", "account_key", "client_id", "client_secret", "tenant_id"}
            arguments = {key: value for key, value in options.items() if key in known}
            if "sas_key" in options and "account_key" not in arguments:
                arguments["sas_token"] = "?" + options["sas_key"]
            if "client_secret" not in arguments:
                arguments = {key: value for key, value in arguments.items() if key != "tenant_id"}
            # pyarrow puts the account in front of the host.
            host = endpoint.netloc.removeprefix(options["account_name"])
            return AzureFileSystem(**arguments, blob_storage_authority=host, blob_storage_scheme=endpoint.scheme)
        location: dict[str, Any] = {
            "retry_time_limit": _ARROW_PATIENCE,
            "endpoint_override": endpoint.netloc,
            "scheme": endpoint.scheme,
        }
        if (tokens := self._open().tokens) is not None:
            token = tokens.get_token()
            expiry = datetime.fromtimestamp(token.expires_at, UTC)
            return GcsFileSystem(access_token=token.text, credential_token_expiration=expiry, **location)
        if options.get("bearer_token") == _EMULATOR_BEARER:
            return GcsFileSystem(anonymous=True, **location)
        return GcsFileSystem(**({"retry_time_limit": _ARROW_PATIENCE} if self.endpoint == _GOOGLE_HOST else location))

    def _build_options(self) -> dict[str, str]:
        return {key: secret.text for key, secret in self._open().settings.cloud or ()}

    def _open(self) -> ClientPair:
        if self._cached_pair is None:
            with self._lock, translate_cloud_errors("reach", self.settings.url):
                if self._cached_pair is None:
                    self._cached_pair = _open_pair(self.settings, self._place)
        return self._cached_pair


def _check_settings(settings: StoreSettings) -> None:
    s3_settings = {
        "region": settings.region,
        "forcePathStyle": settings.force_path_style,
        "kmsKeyId": settings.kms_key_id,
    }
    for name, value in s3_settings.items():
        if value is not None:
            message = f"{settings.url}: `{name}` has no meaning for {_STORAGES[settings.scheme]}"
            hint = (
                "Take it out. Objects are encrypted as the bucket or account says."
                if name == "kmsKeyId"
                else "Take it out."
            )
            raise UserError(message, hint=hint)


def _open_pair(settings: StoreSettings, place: BucketLocation) -> ClientPair:
    if settings.cloud is not None:
        options = {key: secret.text for key, secret in settings.cloud}
        if settings.endpoint is not None:
            options["base_url" if place.scheme == "gs" else "endpoint"] = settings.endpoint.rstrip("/")
    else:
        environ = os.environ  # noqa: TID251 - the edge where the environment of a cloud is read
        options = (_google_options if place.scheme == "gs" else _azure_options)(settings, environ)
    endpoint = urlsplit(options.get("base_url") or options.get("endpoint") or _GOOGLE_HOST)
    if endpoint.scheme not in {"http", "https"} or not endpoint.hostname or " " in endpoint.netloc:
        message = f"cannot reach {settings.url}: its endpoint is not the address of a server"
        raise UserError(message, hint="Correct `endpoint`, or the environment it comes from.")
    complete = replace(settings, endpoint=None, cloud=tuple((key, Secret(value)) for key, value in options.items()))
    tokens = GoogleTokens(settings.account) if place.scheme == "gs" and settings.account is not None else None
    if tokens is not None:
        tokens.get_token()  # The client would report a failure without its cause.
    return ClientPair(
        _open_client(complete, place, tokens, is_once=False),
        _open_client(complete, place, tokens, is_once=True),
        complete,
        tokens,
    )


def read_certificates(path: str, url: str) -> bytes:
    """Return the content of a PEM file of trusted certificates."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"cannot reach {url}: the certificates in {path} cannot be read: {error.strerror or error}"
        raise UserError(message, hint="Correct cloud_storage_trust_file.") from error


def _open_client(
    settings: StoreSettings, place: BucketLocation, tokens: GoogleTokens | None, *, is_once: bool
) -> GCSStore | AzureStore:
    from obstore.store import AzureStore, GCSStore

    patience = settings.patience
    options: Any = {key: secret.text for key, secret in settings.cloud or ()}
    endpoint = options.get("base_url") or options.get("endpoint") or ""
    wanted_ms = patience.register_ms if is_once else patience.upload_ms
    read_s = (CONDITIONAL_READ_SECONDS if is_once else _READ_SECONDS) if wanted_ms is None else wanted_ms / 1000
    attempts = 1 if is_once else ATTEMPTS if patience.initial_backoff_ms is None else _MORE_ATTEMPTS
    client: Any = {
        "allow_http": urlsplit(endpoint).scheme == "http",
        "connect_timeout": timedelta(seconds=CONDITIONAL_CONNECT_SECONDS if is_once else _CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=read_s),
        "timeout": timedelta(seconds=CONDITIONAL_CONNECT_SECONDS + read_s if is_once else _WHOLE_SECONDS),
        "pool_max_idle_per_host": str(POOL),
    }
    if patience.idle_ms is not None:
        client["pool_idle_timeout"] = timedelta(milliseconds=patience.idle_ms)
    if settings.trust_file is not None:
        client["root_certificate"] = read_certificates(settings.trust_file, settings.url)
    retries: Any = {
        "max_retries": attempts - 1,
        "retry_timeout": timedelta(seconds=_WHOLE_SECONDS),
        "backoff": {
            "init_backoff": timedelta(milliseconds=patience.initial_backoff_ms or _FIRST_BACKOFF_MS),
            "max_backoff": timedelta(seconds=_LONGEST_BACKOFF_SECONDS),
            "base": 2,
        },
    }
    kind: Any = GCSStore if place.scheme == "gs" else AzureStore
    login = {} if tokens is None else {"credential_provider": partial(_read_google_credential, tokens)}
    opened: GCSStore | AzureStore = kind(
        place.bucket, config=options, client_options=client, retry_config=retries, **login
    )
    return opened


def _read_google_credential(tokens: GoogleTokens) -> dict[str, object]:
    token = tokens.get_token()
    return {"token": token.text, "expires_at": datetime.fromtimestamp(token.expires_at, UTC)}
