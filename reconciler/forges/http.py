"""HTTP client for a forge, with bounded retries; never sends the token to another host.

It retries a POST only if the forge cannot have executed it; otherwise it raises UnansweredError.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Collection, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from urllib.parse import urljoin, urlsplit

import orjson
from urllib3 import exceptions

from reconciler.errors import (
    NotAuthorizedError,
    ReconcilerError,
    RetryableError,
    UnansweredError,
    UserError,
    find_root_cause,
)
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.effects import log_debug
from reconciler.runtime.https import is_success, make_ssl_context, open_pool
from reconciler.runtime.retry import Backoff, Tries, pause
from reconciler.runtime.text import explain_invalid_json, format_estimate, to_one_line

if TYPE_CHECKING:
    from reconciler.forges.protocol import ForgeSettings


_LOGGER: Final = logging.getLogger("reconciler.forges")
_BACKOFF: Final = Backoff(0.25, 20.0, spread=0.5)
_MAX_ATTEMPTS: Final = 8
_READ_TIMEOUT_S: Final = 30.0
_MAX_RESPONSE_BYTES: Final = 64 << 20
_CHUNK_BYTES: Final = 64 << 10
_MAX_REDIRECTS: Final = 5
_MAX_MESSAGE_CHARACTERS: Final = 500
_SECONDARY_LIMIT_PAUSE_S: Final = 60.0
"""Pause after GitHub's secondary rate limit if the response names none."""

_CHECK_API_HINT: Final = "Check the address of the API, and any proxy in between."
_BUSY_STATUSES: Final = frozenset({502, 503, 504})
_REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
_METHOD_KEEPING_STATUSES: Final = frozenset({307, 308})
_ERRORS_BEFORE_SENDING: Final = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError, exceptions.ProxyError)


@dataclass(frozen=True, slots=True)
class ForgeResponse:
    """An HTTP response of a forge."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    host: str

    def parse_json(self) -> Any:
        """Parse the body as JSON; raise if it is not."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            why = explain_invalid_json(error, self.body)
            message = f"the answer of {self.host} is not a response of the forge's API: {why}"
            raise UserError(message, hint=_CHECK_API_HINT) from error

    def parse_objects(self) -> list[dict[str, Any]]:
        """Parse a list of objects with a numeric `id`."""
        rows = self.parse_json()
        if not isinstance(rows, list) or not all(map(_has_id, rows)):
            raise self._build_unreadable_error()
        return rows

    def parse_object(self) -> dict[str, Any]:
        """Parse an object with a numeric `id`."""
        row = self.parse_json()
        if not _has_id(row):
            raise self._build_unreadable_error()
        return cast("dict[str, Any]", row)

    def read_field(self, name: str) -> Any:
        """Return a field of the JSON object, or `None`."""
        content = self.parse_json()
        return content.get(name) if isinstance(content, dict) else None

    def _build_unreadable_error(self) -> UserError:
        message = f"the answer of {self.host} is not a response of the forge's API"
        return UserError(message, hint=_CHECK_API_HINT)


RetryReason: TypeAlias = Literal["limit", "busy"]
"""Reason to retry after status 200: a rate limit or an overload."""


def _find_no_reason(_answer: ForgeResponse) -> RetryReason | None:
    return None


@dataclass(frozen=True, slots=True)
class ForgeTraits:
    """Name of a forge for errors, and signs that it is overloaded."""

    title: str
    rights_hint: str
    find_retry_reason: Callable[[ForgeResponse], RetryReason | None] = _find_no_reason


class ApiClient:
    """HTTP client of one forge."""

    def __init__(
        self, settings: ForgeSettings, headers: Mapping[str, str], advice: ForgeTraits, now_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._traits = advice
        self._now_ms = now_ms
        self._clock = Tries(_BACKOFF)
        self._host = urlsplit(settings.api).netloc
        self._headers = {"User-Agent": f"reconciler/{settings.tool}", "Accept-Encoding": "gzip", **headers}
        self._pool = open_pool(settings.api, make_ssl_context(settings.ca_file, settings.ca_folder))

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def get(self, path: str, what: str, *, accepts: Collection[int] = ()) -> ForgeResponse:
        """Send a GET; `path` begins with a slash, or is a URL from a response."""
        return self.send("GET", path, what, accepts=accepts)

    def send(
        self,
        method: str,
        path: str,
        what: str,
        *,
        body: Mapping[str, object] | None = None,
        accepts: Collection[int] = (),
        is_repeatable: bool | None = None,
    ) -> ForgeResponse:
        """Send a request; return a response that succeeded or has a status in `accepts`.

        `what` names the operation in errors: "list the comments". By default, only a POST is not repeatable.

        Raises:
            NotAuthorizedError: The token lacks a right.
            UnansweredError: The outcome of a request that is not repeatable is unknown.
            RetryableError: The forge does not answer, or its rate limit outlasts the time limit.
            UserError: The forge refuses the request.
        """
        again = method != "POST" if is_repeatable is None else is_repeatable
        tries = Tries(_BACKOFF, attempts=_MAX_ATTEMPTS, within_s=self._remaining_s)
        url = path if "://" in path else f"{self._settings.api}{path}"
        content = None if body is None else orjson.dumps(body)
        for _ in range(_MAX_REDIRECTS):
            answer = self._send_with_retries(
                method, self._check_host(url), what, content, tries=tries, is_repeatable=again
            )
            if answer.status not in _REDIRECT_STATUSES:
                break
            url = self._read_redirect(answer, url, method)
        if answer.status in accepts or is_success(answer.status):
            return answer
        raise self._build_refusal(answer, what)

    def _send_with_retries(
        self, method: str, url: str, what: str, content: bytes | None, *, tries: Tries, is_repeatable: bool
    ) -> ForgeResponse:
        while True:
            try:
                answer = self._send_once(method, url, content)
            except exceptions.HTTPError as error:
                cause = find_root_cause(error)
                self._reject_untrusted_certificate(cause)
                reason = self._redact_line(str(cause)) or type(cause).__name__
                if isinstance(error, exceptions.LocationValueError):
                    raise UserError(f"{self._host} names an invalid address: {reason}", hint=_CHECK_API_HINT) from error
                if isinstance(error, exceptions.DecodeError):
                    message = f"{self._host} does not speak as an API does: {reason}"
                    raise UserError(message, hint=_CHECK_API_HINT) from error
                problem = f"{self._host} does not answer: {reason}"
                if not (is_repeatable or isinstance(error, _ERRORS_BEFORE_SENDING)):
                    raise self._build_unanswered_error(problem, what) from error
                self._wait_before_retry(tries, problem, what, error)
                continue
            trouble = self._traits.find_retry_reason(answer) if is_success(answer.status) else None
            pause_s = self._read_requested_pause(answer, is_limited=trouble == "limit")
            if pause_s is not None and (is_repeatable or answer.status not in _BUSY_STATUSES):
                self._wait_for_limit(answer, what, pause_s)
            elif answer.status in _BUSY_STATUSES or trouble is not None:
                problem = f"{self._host} answers {answer.status}"
                problem += f": {self._read_reason(answer)}" if trouble is not None else ""
                if not is_repeatable:
                    raise self._build_unanswered_error(problem, what)
                self._wait_before_retry(tries, problem, what)
            else:
                return answer

    def _wait_before_retry(self, tries: Tries, problem: str, what: str, cause: Exception | None = None) -> None:
        pause_s = _BACKOFF.compute_pause(tries.failed + 1)
        if tries.would_end_after(pause_s):
            message = f"cannot {what}: {problem}"
            raise RetryableError(message, hint="Run the same command again; --timeout gives it longer.") from cause
        tries.wait(pause_s)

    def _send_once(self, method: str, url: str, content: bytes | None) -> ForgeResponse:
        left = self._remaining_s
        if left <= 0:
            raise exceptions.ConnectTimeoutError("the time is over")
        headers = self._headers if content is None else {**self._headers, "Content-Type": "application/json"}
        with self._pool.request(
            method,
            url,
            body=content,
            headers=headers,
            timeout=min(left, _READ_TIMEOUT_S),
            redirect=False,
            preload_content=False,
        ) as response:
            body = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > _MAX_RESPONSE_BYTES:
                    message = f"the answer of {self._host} does not end"
                    raise UserError(message, hint=_CHECK_API_HINT)
                if self._remaining_s <= 0:
                    raise exceptions.TimeoutError("the answer does not end in time")
            log_debug(_LOGGER, "asked", method=method, path=urlsplit(url).path, status=response.status)
            return ForgeResponse(response.status, response.headers, bytes(body), self._host)

    @property
    def _remaining_s(self) -> float:
        return self._settings.within_s - self._clock.elapsed_s

    def _check_host(self, url: str) -> str:
        if _parse_origin(url) != _parse_origin(self._settings.api):
            message = f"{self._host} redirects to {self._redact_line(urlsplit(url).netloc)}, which is another host"
            raise UserError(message, hint="The token was not sent to it. If that host is right, name its API instead.")
        return url

    def _read_redirect(self, answer: ForgeResponse, url: str, method: str) -> str:
        try:
            place = urljoin(url, answer.headers.get("Location", ""))
        except ValueError as error:
            raise UserError(f"{self._host} redirects to an invalid address", hint=_CHECK_API_HINT) from error
        if method != "GET" and answer.status not in _METHOD_KEEPING_STATUSES:
            message = f"{self._host} says that {self._settings.repository} has moved"
            raise UserError(message, hint="Give its new name with --repository.")
        return place

    def _read_requested_pause(self, answer: ForgeResponse, *, is_limited: bool) -> float | None:
        headers = answer.headers
        is_spent = headers.get("x-ratelimit-remaining") == "0" or headers.get("ratelimit-remaining") == "0"
        is_limit = (
            is_limited
            or answer.status == HTTPStatus.TOO_MANY_REQUESTS
            or (
                answer.status == HTTPStatus.FORBIDDEN
                and ("retry-after" in headers or is_spent or b"rate limit" in answer.body.lower())
            )
        )
        if not is_limit and not (answer.status in _BUSY_STATUSES and "retry-after" in headers):
            return None
        if (named := self._parse_retry_after(headers.get("retry-after"))) is not None:
            return named
        until = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
        if is_spent and until.isdecimal():
            return max(0.0, int(until) - self._now_ms() / 1000) + 1
        return _SECONDARY_LIMIT_PAUSE_S

    def _parse_retry_after(self, text: str | None) -> float | None:
        if text is None:
            return None
        if text.strip().isdecimal():
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - self._now_ms() / 1000)
        except ValueError:
            return None

    def _wait_for_limit(self, answer: ForgeResponse, what: str, pause_s: float) -> None:
        if pause_s >= self._remaining_s:
            message = (
                f"{self._traits.title} asks to wait {format_estimate(pause_s)} before it lets reconciler {what}: "
                f"{self._read_reason(answer) or 'too many requests'}"
            )
            raise RetryableError(message, hint="Run the same command later, or give it longer with --timeout.")
        pause(max(pause_s, _BACKOFF.first_s))

    def _build_refusal(self, answer: ForgeResponse, what: str) -> ReconcilerError:
        title, status = self._traits.title, answer.status
        reason = self._read_reason(answer)
        because = f": {reason}" if reason else ""
        match status:
            case 401:
                message = f"{title} does not accept the token in {self._settings.token_name}{because}"
                return NotAuthorizedError(message, hint="It is wrong or has expired. Set a new one.")
            case 403:
                return NotAuthorizedError(
                    f"{title} does not let this token {what}{because}", hint=self._traits.rights_hint
                )
            case 404:
                message = (
                    f"{title} cannot {what} in {self._settings.repository}: it does not exist, or this token may not "
                    "see it"
                )
                return UserError(
                    message, hint=f"Check --repository, and for a comment --pull-request. {self._traits.rights_hint}"
                )
            case 500 | 502 | 503 | 504:
                hint = "Run the same command again."
                return RetryableError(f"{title} answers {status} to a request to {what}{because}", hint=hint)
            case _:
                message = f"{title} refuses to {what} ({status}){because}"
                return UserError(message, hint="Read the answer, then change the text or the repository's settings.")

    def _build_unanswered_error(self, problem: str, what: str) -> UnansweredError:
        message = f"{problem}. Whether it could {what} is not known"
        return UnansweredError(message, hint="Run the same command again: it checks what exists before it writes.")

    def _reject_untrusted_certificate(self, cause: BaseException) -> None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            message = f"the certificate of {self._host} is not trusted: {self._redact_line(cause.verify_message)}"
            raise UserError(message, hint="Name a file with its authority in SSL_CERT_FILE.") from cause

    def _read_reason(self, answer: ForgeResponse) -> str:
        try:
            content = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            return ""
        if not isinstance(content, dict):
            return ""
        parts = [content.get(name) for name in ("message", "error", "error_description")]
        errors = content.get("errors")
        if isinstance(errors, list):
            parts += [problem.get("message") if isinstance(problem, dict) else problem for problem in errors]
        return self._redact_line("; ".join(dict.fromkeys(_to_text(part) for part in parts if part)))

    def _redact_line(self, text: str) -> str:
        return to_one_line(text.replace(self._settings.token, "***"))[:_MAX_MESSAGE_CHARACTERS]


def _to_text(part: object) -> str:
    return part if isinstance(part, str) else orjson.dumps(part).decode()


def _parse_origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url, "", None
    return parts.scheme, parts.hostname or "", port or {"https": 443, "http": 80}.get(parts.scheme)


def _has_id(row: object) -> bool:
    return isinstance(row, dict) and type(row.get("id")) is int
