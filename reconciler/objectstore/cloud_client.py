"""Clients of one location of Google Cloud Storage or Azure Blob Storage: credentials, retries, errors, and pyarrow's.

What a location leaves open is found where the tools of its cloud find it: this is the edge where that part of the
environment is read, once, in the process that opens the store. What travels (`CloudClients.resolved`) says it by
`obstore`'s names. Where the environment names nothing, the identity of the machine is asked for a token, here and
wherever the store arrives: such an identity cannot travel, and another machine has its own.
"""

from __future__ import annotations

import html
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from reconciler.errors import MendFirstError, ReconcilerError, RetryableError, StoreRefusedError, UserError
from reconciler.objectstore.settings import Place, Secret, StoreSettings
from reconciler.runtime.text import one_line

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore
    from pyarrow.fs import FileSystem

    from reconciler.objectstore.base import Doing


# Errors. `obstore` says all it knows in one text: the request with its address, the answer with its body, and how both
# are held in memory. An address may carry a signature, so nothing of that text is shown but the status, the code and
# the message of an answer, and why a connection failed.


_GOOGLE_RIGHTS: Final[dict[Doing, str]] = {
    "reach": "storage.objects.list",
    "read": "storage.objects.get (and storage.objects.list: without it a missing object is denied, too)",
    "write": "storage.objects.create and storage.objects.delete (which replacing an object needs)",
    "copy": "storage.objects.get on the source, storage.objects.create and storage.objects.delete on the target",
    "list": "storage.objects.list on the bucket",
    "delete": "storage.objects.delete",
}
_AZURE_RIGHTS: Final = "the role Storage Blob Data Contributor on the container (Reader is enough to read and list)"
_AGAIN: Final = "Nothing that was acknowledged is lost. Run the same command again."
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
_DENIED: Final = frozenset({"AuthorizationPermissionMismatch", "AccessDenied", "InsufficientAccountPermissions"})
_EXPIRED: Final = frozenset({"ExpiredToken", "AuthenticationTokenExpired"})
_BUSY_STATUSES: Final = frozenset({429, 503})
_LOST, _CONFLICT, _GONE, _TOO_LARGE, _FULL, _BEYOND = 412, 409, 404, 413, 507, 416
_SERVER_ERROR: Final = 500
_UNAUTHORIZED, _FORBIDDEN = 401, 403

_BEYOND_THE_END: Final = ("Wanted range starting at", "Failed to parse value for CONTENT_RANGE")
"""What the client says of an answer that has nothing of the range in it."""
_STATUS: Final = re.compile(r"(?:status code: |\(code: )(\d{3})\b")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>|\"reason\": ?\"([^\"]{1,100})\"")
_SAID: Final = re.compile(r"<Message>([^<]*?)(?:\nRequestId:[^<]*)?</Message>|\"message\": ?\"((?:[^\"\\]|\\.)*)\"")
_CAUSE: Final = re.compile(r"message: \"([^\"]{1,200})\"")
_SYSTEM: Final = re.compile(r"Os \{[^}]*message: \"([^\"]{1,200})\"")


@contextmanager
def cloud_faults(doing: Doing, url: str) -> Iterator[None]:
    """Raise our error for what goes wrong with a cloud inside; `doing` completes "cannot … URL"."""
    try:
        yield
    except ReconcilerError:
        raise
    except Exception as error:
        if not is_fault(error):
            raise
        # Not `from error`: its text has addresses, which may be signed.
        raise told(error, doing, url) from None


def is_fault(error: Exception) -> bool:
    """Tell whether an error is one of `obstore`; some of those are Python's own kinds."""
    from obstore.exceptions import BaseError  # noqa: PLC0415 - only users of these clouds pay

    return isinstance(error, BaseError | FileNotFoundError | NotImplementedError | ValueError)


def status_of(error: Exception) -> int:
    """Return the HTTP status of an answer; 0 where none came."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def code_of(error: Exception) -> str:
    """Return the cloud's own word for an error, or the status where it has none."""
    found = _CODE.search(_told_by(error))
    word = (found[1] or found[2]) if found else ""
    return one_line(word or str(status_of(error) or "no answer"))


def is_missing(error: Exception) -> bool:
    """Tell whether there is no such object, in a bucket that is there."""
    if status_of(error) != _GONE and not isinstance(error, FileNotFoundError):
        return False
    return not _names_no_bucket(error)


def is_beyond(error: Exception) -> bool:
    """Tell whether a range begins after the end of the object."""
    return status_of(error) == _BEYOND or any(text in str(error) for text in _BEYOND_THE_END)


def is_refused(error: Exception) -> bool:
    """Tell whether a condition does not hold."""
    return status_of(error) == _LOST or code_of(error) == "BlobAlreadyExists" or is_missing(error)


def is_unknown(error: Exception) -> bool:
    """Tell whether what was asked may have been done or not."""
    status = status_of(error)
    if status == 0:
        return "HTTP error: " in str(error) and not _is_of_certificates(error) and "builder error" not in str(error)
    return status in {_CONFLICT, *_BUSY_STATUSES, 408} or status >= _SERVER_ERROR


def told(error: Exception, doing: Doing, url: str) -> ReconcilerError:
    """Return the error that says what to do, be it about an answer or that there was none."""
    where, status, code = f"cannot {doing} {url}", status_of(error), code_of(error)
    is_azure = url.startswith("az:")
    noun = "container" if is_azure else "bucket"
    if "token request" in _told_by(error) or "GCP credential error" in _told_by(error):
        return _not_logged_in(error, where, is_azure=is_azure)
    if _names_no_bucket(error) or status == _GONE:
        hint = "Create it, or correct its name; reconciler never creates one."
        return StoreRefusedError(f"{where}: there is no such {noun}", hint=hint)
    if status == 0:
        return _unanswered(error, where)
    if code in _EXPIRED:
        return MendFirstError(f"{where}: the credentials have expired", hint=f"Renew them (log in again). {_AGAIN}")
    if status == _UNAUTHORIZED or (
        status == _FORBIDDEN and code.startswith(("Authentication", "AuthorizationFailure"))
    ):
        return StoreRefusedError(
            f"{where}: the credentials are not accepted ({code})", hint=_where_credentials_are(is_azure=is_azure)
        )
    if status == _FORBIDDEN:
        rights = _AZURE_RIGHTS if is_azure else _GOOGLE_RIGHTS[doing]
        return StoreRefusedError(f"{where}: access denied", hint=f"Allow these credentials {rights}.")
    if status in _BUSY_STATUSES:
        return RetryableError(f"{where}: the store is throttling ({code})", hint=f"Wait a little. {_AGAIN}")
    if status == _CONFLICT:
        return RetryableError(f"{where}: other writers are in the way ({code})", hint=f"Wait a little. {_AGAIN}")
    if status == _TOO_LARGE:
        return StoreRefusedError(f"{where}: the object is too large for this store", hint="Write less at once.")
    if status == _FULL:
        return MendFirstError(f"{where}: the store is full", hint=f"Free some space or raise its quota. {_AGAIN}")
    if status >= _SERVER_ERROR:
        return RetryableError(f"{where}: the store failed: {_message_of(error)} ({code})", hint=_AGAIN)
    return StoreRefusedError(f"{where}: {_message_of(error)} ({code})", hint="Check the location and its rights.")


def _names_no_bucket(error: Exception) -> bool:
    text = _told_by(error)
    if "The specified container does not exist" in text or "The specified bucket does not exist" in text:
        return True
    found = _CODE.search(text)
    return found is not None and (found[1] or found[2]) in _NO_BUCKET


def _not_logged_in(error: Exception, where: str, *, is_azure: bool) -> ReconcilerError:
    status = status_of(error)
    if status in {400, _UNAUTHORIZED}:
        message = f"{where}: the credentials are not accepted ({status})"
    else:
        message = f"{where}: no credentials were found, and this machine's own identity gave none"
    return StoreRefusedError(message, hint=_where_credentials_are(is_azure=is_azure))


def _where_credentials_are(*, is_azure: bool) -> str:
    if is_azure:
        return (
            "Check AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or "
            "AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID; "
            "AZURE_USE_AZURE_CLI=true takes those of `az login`."
        )
    return "Check GOOGLE_APPLICATION_CREDENTIALS, or log in: gcloud auth application-default login."


def _unanswered(error: Exception, where: str) -> ReconcilerError:
    text = str(error)
    if _is_of_certificates(error):
        return StoreRefusedError(f"{where}: its certificate is not trusted", hint="Check the endpoint's certificate.")
    if "HTTP error: " not in text or "builder error" in text:
        said = one_line(text.partition("\n")[0].partition(" error: ")[2] or "it cannot be reached")
        return StoreRefusedError(
            f"{where}: {said.rstrip('. ')}", hint="Correct `endpoint`, or the environment it comes from."
        )
    if "kind: Timeout" in text or "TimedOut" in text:
        return RetryableError(f"{where}: no answer in time", hint=f"Check the network. {_AGAIN}")
    cause = _SYSTEM.search(text) or _CAUSE.search(text)
    if cause is not None:
        why = one_line(cause[1]).lower()
    elif "dns error" in text:
        why = "its name is not known"
    else:
        why = "the connection broke off"
    return RetryableError(f"{where}: {why}", hint=f"Check the endpoint, its name and the network. {_AGAIN}")


def _is_of_certificates(error: Exception) -> bool:
    return "invalid peer certificate" in str(error) or "InvalidCertificate" in str(error)


def _message_of(error: Exception) -> str:
    found = _SAID.search(_told_by(error))
    said = html.unescape(found[1] or found[2] or "") if found else ""
    return one_line(said or "no reason given").rstrip(". ")[:300]


def _told_by(error: Exception) -> str:
    """Return what an error says, without how it is held in memory."""
    return str(error).partition("\n\nDebug source:")[0]


# Whether the client is here: an installation without it keeps everything on S3 and in folders.


_EXTRAS: Final = {"gs": "gcs", "az": "azure"}
_STORAGES: Final = {"gs": "Google Cloud Storage", "az": "Azure Blob Storage"}


def check_installed(settings: StoreSettings) -> None:
    """Return if the client can be imported.

    Raises:
        UserError: It is not installed.
    """
    if find_spec("obstore") is None:
        message = f"{settings.url}: {_STORAGES[settings.scheme]} needs obstore, which is not installed"
        raise UserError(message, hint=f"Install it: pip install 'stream-reconciler[{_EXTRAS[settings.scheme]}]'.")


# What the environment says, by the names that the tools of a cloud have for it, in the order in which they are asked.


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
_ANYTHING: Final = "emulator"
"""Emulators take any token, and must not get a real one."""
_AZURE: Final = {
    "account_name": ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"),
    "account_key": ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"),
    "sas_key": ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
    "endpoint": ("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_SERVICE_ENDPOINT"),
    "client_id": ("AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID"),
    "client_secret": ("AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET"),
    "tenant_id": ("AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID"),
    "authority_host": ("AZURE_AUTHORITY_HOST",),
    "federated_token_file": ("AZURE_FEDERATED_TOKEN_FILE",),
    "use_azure_cli": ("AZURE_USE_AZURE_CLI",),
}
_AZURE_STRING: Final = "AZURE_STORAGE_CONNECTION_STRING"
_DEVELOPMENT: Final = {
    "account_name": "devstoreaccount1",
    "account_key": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "endpoint": "http://127.0.0.1:10000/devstoreaccount1",
}
"""What `UseDevelopmentStorage=true` stands for in every tool; the key is published, and opens emulators alone."""
_AZURE_KINDS: Final = (
    ("account_key", "access_key"),
    ("sas_key", "sas_token"),
    ("client_secret", "client_secret"),
    ("federated_token_file", "workload_identity"),
    ("use_azure_cli", "azure_cli"),
)
"""How one logs in with what is named: the first that is there."""
_NO: Final = frozenset({"0", "false", "off", "no", "n"})
_ARROW_PATIENCE: Final = timedelta(seconds=60)
"""How long pyarrow asks Google again; a quarter of an hour if it is not told."""
_GOOGLE_HOST: Final = "https://storage.googleapis.com"


def _google_options(settings: StoreSettings, environ: Mapping[str, str]) -> dict[str, str]:
    if settings.endpoint is None and (emulator := environ.get(_GOOGLE_EMULATOR)):
        return {"base_url": emulator if "://" in emulator else f"http://{emulator}", "bearer_token": _ANYTHING}
    found = _found(_GOOGLE, environ)
    if (path := found.get("application_credentials")) is not None and "service_account_key" not in found:
        body = _read(path, settings.url)
        if '"service_account"' in body:  # what travels must not need the file
            del found["application_credentials"]
            found["service_account_key"] = body
    return found if settings.endpoint is None else {**found, "base_url": settings.endpoint.rstrip("/")}


def _azure_options(settings: StoreSettings, environ: Mapping[str, str]) -> dict[str, str]:
    text = environ.get(_AZURE_STRING)
    found = _connection(text) if text else _found(_AZURE, environ)
    if settings.endpoint is not None:
        found["endpoint"] = settings.endpoint
        found.setdefault("account_name", _account_of(settings.endpoint))
    if not found.get("account_name"):
        message = f"cannot reach {settings.url}: no storage account is named"
        raise UserError(message, hint=f"Set AZURE_STORAGE_ACCOUNT or {_AZURE_STRING}, or `endpoint` of the location.")
    found.setdefault("endpoint", f"https://{found['account_name']}.blob.core.windows.net")
    if found.get("use_azure_cli", "").lower() in _NO:
        del found["use_azure_cli"]
    kind = next((kind for key, kind in _AZURE_KINDS if key in found), None)
    return found if kind is None else {**found, "credential_type": kind}


def _found(names: Mapping[str, tuple[str, ...]], environ: Mapping[str, str]) -> dict[str, str]:
    values = {key: next(filter(None, map(environ.get, candidates)), None) for key, candidates in names.items()}
    return {key: value for key, value in values.items() if value}


def _connection(text: str) -> dict[str, str]:
    """Return what a connection string says; its parts are `Name=value`, with semicolons between them."""
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
        raise UserError(f"{_AZURE_STRING} names neither an account nor an endpoint", hint=hint)
    found = {
        "account_name": account or _account_of(endpoint),
        "account_key": parts.get("accountkey", ""),
        "sas_key": parts.get("sharedaccesssignature", "").removeprefix("?"),
        "endpoint": endpoint.rstrip("/"),
    }
    return {key: value for key, value in found.items() if value}


def _account_of(endpoint: str) -> str:
    """Return the account that an endpoint names: in its host, or, at an emulator, in its path."""
    parts = urlsplit(endpoint)
    return parts.path.strip("/").partition("/")[0] or (parts.hostname or "").partition(".")[0]


def _read(path: str, url: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no UTF-8 text"
        message = f"cannot reach {url}: the credentials file {path} cannot be read: {why}"
        raise UserError(message, hint="Correct GOOGLE_APPLICATION_CREDENTIALS.") from error


# The clients themselves.


POOL: Final = 64
"""Idle connections a client keeps."""
ATTEMPTS: Final = 5
_MORE_ATTEMPTS: Final = 8
"""Where pauses begin short."""
_FIRST_BACKOFF_MS: Final = 100
_LONGEST_BACKOFF_SECONDS: Final = 20.0
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 60
_WHOLE_SECONDS: Final = 600
"""For a request with its whole body, however slowly that moves."""
CONDITIONAL_CONNECT_SECONDS: Final = 5
CONDITIONAL_READ_SECONDS: Final = 7
"""As of S3 (`s3_client.py`)."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The two clients of a process, and what they were made of."""

    steady: GCSStore | AzureStore
    """Tries again by itself: for reads, and for writes that may be done twice."""
    once: GCSStore | AzureStore
    """Never tries again by itself: for conditional writes, and for reading them back."""
    settings: StoreSettings
    """Complete."""


class CloudClients:
    """Opens the clients of a location when they are first needed, once a process. Safe to share between threads."""

    def __init__(self, settings: StoreSettings) -> None:
        """Name the location; nothing is asked yet.

        Raises:
            UserError: The client is not installed, or the location says what has no meaning in its cloud.
        """
        check_installed(settings)
        _check_settings(settings)
        self.settings = settings
        self._place = Place.of(settings)
        self._opened: Opened | None = None
        self._lock = threading.Lock()

    @property
    def steady(self) -> GCSStore | AzureStore:
        """The client that tries again by itself."""
        return self._open().steady

    @property
    def once(self) -> GCSStore | AzureStore:
        """The client that never does."""
        return self._open().once

    @property
    def endpoint(self) -> str:
        """Where requests go, without the name of a bucket."""
        options = self._options()
        return options.get("base_url") or options.get("endpoint") or _GOOGLE_HOST

    def reach_the_same_as(self, other: CloudClients) -> bool:
        """Tell whether a copy from there can be made by the server: one bucket, one set of credentials."""
        return (self.bucket, self.resolved().cloud) == (other.bucket, other.resolved().cloud)

    @property
    def bucket(self) -> tuple[str, str]:
        """The kind of storage, and the bucket or container in it."""
        return self._place.scheme, self._place.bucket

    def resolved(self) -> StoreSettings:
        """Return complete settings, credentials included."""
        return self._open().settings

    def arrow_filesystem(self) -> FileSystem:
        """Return pyarrow's file system for the same account, made of the same settings.

        Of Google, pyarrow takes no key: it looks for credentials itself, where Google's own tools do.
        """
        from pyarrow.fs import AzureFileSystem, GcsFileSystem  # noqa: PLC0415 - only who asks for it pays

        options, endpoint = self._options(), urlsplit(self.endpoint)
        if self._place.scheme == "az":
            known = {"account_name", "account_key", "client_id", "client_secret", "tenant_id"}
            told = {key: value for key, value in options.items() if key in known}
            if "sas_key" in options and "account_key" not in told:
                told["sas_token"] = "?" + options["sas_key"]
            if "client_secret" not in told:
                told = {key: value for key, value in told.items() if key != "tenant_id"}
            host = endpoint.netloc.removeprefix(options["account_name"])  # pyarrow puts the account before a dot
            return AzureFileSystem(**told, blob_storage_authority=host, blob_storage_scheme=endpoint.scheme)
        place: dict[str, Any] = {
            "retry_time_limit": _ARROW_PATIENCE,
            "endpoint_override": endpoint.netloc,
            "scheme": endpoint.scheme,
        }
        if options.get("bearer_token") == _ANYTHING:
            return GcsFileSystem(anonymous=True, **place)
        return GcsFileSystem(**({"retry_time_limit": _ARROW_PATIENCE} if self.endpoint == _GOOGLE_HOST else place))

    def _options(self) -> dict[str, str]:
        return {key: secret.text for key, secret in self._open().settings.cloud or ()}

    def _open(self) -> Opened:
        if self._opened is None:
            with self._lock, cloud_faults("reach", self.settings.url):
                if self._opened is None:
                    self._opened = _opened(self.settings, self._place)
        return self._opened


def _check_settings(settings: StoreSettings) -> None:
    """Refuse what S3 alone has: nothing is left unencrypted, or sent elsewhere, in silence."""
    given = {
        "region": settings.region,
        "forcePathStyle": settings.force_path_style,
        "kmsKeyId": settings.kms_key_id,
    }
    for name, value in given.items():
        if value is not None:
            message = f"{settings.url}: `{name}` has no meaning for {_STORAGES[settings.scheme]}"
            hint = (
                "Take it out. Objects are encrypted as the bucket or account says."
                if name == "kmsKeyId"
                else "Take it out."
            )
            raise UserError(message, hint=hint)


def _opened(settings: StoreSettings, place: Place) -> Opened:
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
    return Opened(_client(complete, place, is_once=False), _client(complete, place, is_once=True), complete)


def certificates(path: str, url: str) -> bytes:
    """Return the authorities to trust beside those of the machine.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"cannot reach {url}: the certificates in {path} cannot be read: {error.strerror or error}"
        raise UserError(message, hint="Correct cloud_storage_trust_file.") from error


def _client(settings: StoreSettings, place: Place, *, is_once: bool) -> GCSStore | AzureStore:
    from obstore.store import AzureStore, GCSStore  # noqa: PLC0415 - only who asks for it pays

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
        client["root_certificate"] = certificates(settings.trust_file, settings.url)
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
    opened: GCSStore | AzureStore = kind(place.bucket, config=options, client_options=client, retry_config=retries)
    return opened
