"""Errors of Google Cloud Storage, of Azure Blob Storage and of the connection to them, as errors of ours.

`obstore` says all it knows in one text: the request with its address, the answer with its body, and how both are held
in memory. An address may carry a signature, so nothing of that text is shown but the status, the code and the
message of an answer, and why a connection failed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from reconciler.errors import MendFirstError, ReconcilerError, RetryableError, StoreRefusedError
from reconciler.runtime.text import one_line

if TYPE_CHECKING:
    from reconciler.objectstore.s3_faults import Doing


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
