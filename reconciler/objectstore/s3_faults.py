"""Errors of S3 and of the connection to it, as errors of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from reconciler.errors import MendFirstError, ReconcilerError, RetryableError, StoreRefusedError
from reconciler.runtime.text import one_line

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError


Doing: TypeAlias = Literal["reach", "read", "write", "copy", "list", "delete"]

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
