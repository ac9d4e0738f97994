"""Requests to the HTTP API of a cluster that has several addresses.

After no response, a 503 or a 504, the next address is tried. A change is repeated only if it was not executed.
Redirects are followed to declared addresses only.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from urllib3 import PoolManager, exceptions

from reconciler.errors import (
    NotAuthorizedError,
    ReconcilerError,
    RetryableError,
    UnansweredError,
    UserError,
    find_root_cause,
)
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.https import is_success, open_pool
from reconciler.runtime.retry import Backoff, RateLimit, Tries
from reconciler.runtime.text import explain_invalid_json, to_one_line

_BACKOFF: Final = Backoff(0.1, 1.5, spread=0.5)
_CHUNK_BYTES: Final = 64 << 10
_MESSAGE_CHARACTERS: Final = 300
_HOPS: Final = 3
_LEAST_S: Final = 1.0
"""Least time that an address gets for its answer."""
_REFUSED_S: Final = 3.0
"""Limit of the retries while every address refuses the connection: nothing listens there."""
_LIMITED: Final = HTTPStatus.TOO_MANY_REQUESTS
_BUSY: Final = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, _LIMITED})
_PACE: Final = Backoff(0.05, 0.4, spread=0.5)
"""Pauses after a 429 that does not say how long to wait."""
_LIMITED_S: Final = 300.0
"""Limit of the retries while the API answers 429 only."""
_WAITS: Final = ("Retry-After", "X-RateLimit-Reset")
"""Headers of a 429 with the seconds until the next request (confluent.md, 11)."""
_UNSENT: Final = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError, exceptions.ProxyError)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Response that is neither a redirect nor an overload error."""

    status: int
    body: bytes
    where: str
    """Cluster and address of the response."""
    wait_s: float | None = None
    """Seconds until the next request, if an overloaded API tells them."""

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return is_success(self.status)

    def json(self) -> Any:
        """Return the decoded body.

        Raises:
            UserError: The body is not JSON.
        """
        try:
            return orjson.loads(self.body or b"null")
        except orjson.JSONDecodeError as error:
            message = f"{self.where}: the answer is no JSON: {explain_invalid_json(error, self.body)}"
            raise UserError(message, hint="Check the address, and any proxy in between.") from error

    @property
    def message(self) -> str:
        """`message` of a JSON error, else the body, in one line."""
        try:
            content = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            content = self.body.decode(errors="replace")
        if isinstance(content, dict):
            content = content.get("message", content)
        text = content if isinstance(content, str) else orjson.dumps(content).decode()
        return to_one_line(text)[:_MESSAGE_CHARACTERS]


@dataclass(frozen=True)
class HttpLogin:
    """Login to an HTTP API. Its values are read on the first request."""

    read_headers: Callable[[], Mapping[str, str]]
    build_context: Callable[[], ssl.SSLContext]
    hint: str
    """What to check if the login is rejected."""
    get_token: Callable[[str], str] | None = None
    """Returns a valid bearer token other than the given one, which was refused; it replaces `read_headers`."""

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Headers of each request by a login that does not expire."""
        return self.read_headers()

    @cached_property
    def context(self) -> ssl.SSLContext:
        """TLS context for https addresses."""
        return self.build_context()


def build_basic_header(user: str, password: str) -> dict[str, str]:
    """Return the header of a login by user and password."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def build_bearer_header(token: str) -> dict[str, str]:
    """Return the header of a login by token."""
    return {"Authorization": f"Bearer {token}"}


@dataclass(slots=True)
class HttpApi:
    """HTTP API of one cluster. Thread-safe; connects on the first request."""

    name: str
    """Prefix of each message, such as `cluster west: Admin API`."""
    addresses: Sequence[str]
    field_name: str
    """Field of the Cluster that declares the addresses."""
    timeout_s: float
    """Limit in seconds of one request with its retries."""
    login: HttpLogin
    refusals: frozenset[int] = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
    """Statuses that mean a refused login."""
    answer_max: int = 64 << 20
    """Limit in bytes of one response."""
    rate: RateLimit | None = None
    _pools: dict[tuple[str, str], PoolManager] = field(default_factory=dict)

    def read(self, path: str) -> HttpAnswer:
        """Send a GET until an address responds.

        Raises:
            NotAuthorizedError: The login was rejected.
            RetryableError: No address responded in time.
        """
        return self._send("GET", path, None, is_repeatable=True)

    def change(
        self,
        method: str,
        path: str,
        content: object = None,
        *,
        is_repeatable: bool = False,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> HttpAnswer:
        """Send a request that changes something; `is_repeatable` means that it is idempotent.

        Raises:
            NotAuthorizedError: The login was rejected.
            UnansweredError: The request may have been executed.
            RetryableError: No address responded in time; the request was not executed.
        """
        body = None if content is None else orjson.dumps(content)
        return self._send(method, path, body, is_repeatable=is_repeatable, headers=headers)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        *,
        is_repeatable: bool,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> HttpAnswer:
        tries, limited = Tries(_BACKOFF, within_s=self.timeout_s), Tries(_PACE, within_s=_LIMITED_S)
        while True:
            problems: list[str] = []
            are_refused = True
            answer = None
            for position, address in enumerate(self.addresses):
                left = (self.timeout_s - tries.elapsed_s) / (len(self.addresses) - position)
                try:
                    answer = self._follow(method, address, path, body, max(_LEAST_S, left), headers)
                except exceptions.HTTPError as error:
                    are_refused &= isinstance(find_root_cause(error), ConnectionRefusedError)
                    problems.append(self._explain(address, error))
                    if not is_repeatable and not isinstance(error, _UNSENT):
                        raise self._unanswered_error(problems[-1]) from error
                    continue
                are_refused = False
                if answer.status in _BUSY or (is_repeatable and answer.status == HTTPStatus.GATEWAY_TIMEOUT):
                    problems.append(f"{address} answers {answer.status}: {answer.message}")
                    continue
                if answer.status == HTTPStatus.GATEWAY_TIMEOUT:
                    raise self._unanswered_error(f"{address} answers {answer.status}: {answer.message}")
                return self._require_accepted_login(answer)
            if answer is not None and answer.status == _LIMITED and not limited.would_end_after(answer.wait_s or 0.0):
                limited.wait(answer.wait_s)
                continue
            if tries.has_ended or (are_refused and tries.elapsed_s >= _REFUSED_S):
                message = f"{self.name}: {'; '.join(problems)}"
                raise RetryableError(message, hint="See whether its nodes are alive, then run the same command again.")
            tries.wait()

    def _follow(
        self, method: str, address: str, path: str, body: bytes | None, limit_s: float, more: Mapping[str, str]
    ) -> HttpAnswer:
        url = address.rstrip("/") + path
        for _ in range(_HOPS):
            status, headers, content = self._send_once(method, url, body, limit_s, more)
            if status != HTTPStatus.TEMPORARY_REDIRECT:
                break
            url = headers.get("Location", "")
            if _origin(url) not in map(_origin, self.addresses):
                message = f"{self.name}: {address} redirects to {to_one_line(url) or 'nowhere'}, which is not declared"
                hint = f"Add it to {self.field_name} of the Cluster: the login is sent to declared addresses only."
                raise UserError(message, hint=hint)
        else:
            raise exceptions.ConnectTimeoutError(f"more than {_HOPS} redirects")
        return HttpAnswer(status, content, f"{self.name} ({address})", _parse_wait(headers))

    def _send_once(
        self, method: str, url: str, body: bytes | None, limit_s: float, more: Mapping[str, str], refused: str = ""
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self.rate is not None:
            self.rate.wait()
        token = self.login.get_token(refused) if self.login.get_token is not None else ""
        login = build_bearer_header(token) if token else self.login.headers
        headers = {"Accept": "application/json", **login, **more}
        if body is not None:
            headers["Content-Type"] = "application/json"
        origin = _origin(url)
        pool = self._pools.get(origin)
        if pool is None:
            context = self.login.context if origin[0] == "https" else None
            pool = self._pools.setdefault(origin, open_pool(url, context))
        with pool.request(
            method, url, body=body, headers=headers, timeout=limit_s, redirect=False, preload_content=False
        ) as answer:
            content = bytearray()
            while chunk := answer.read1(_CHUNK_BYTES):
                content += chunk
                if len(content) > self.answer_max:
                    message = f"{self.name}: the answer of {url} does not end"
                    raise UserError(message, hint="Check the address, and any proxy in between.")
        if answer.status == HTTPStatus.UNAUTHORIZED and token and not refused:  # It has expired or was revoked.
            return self._send_once(method, url, body, limit_s, more, token)
        return answer.status, answer.headers, bytes(content)

    def _require_accepted_login(self, answer: HttpAnswer) -> HttpAnswer:
        if answer.status in self.refusals:
            message = f"{answer.where} refuses the login ({answer.status}): {answer.message}"
            raise NotAuthorizedError(message, hint=self.login.hint)
        return answer

    def _explain(self, address: str, error: exceptions.HTTPError) -> str:
        """Return why an address did not respond; raise if a retry would fail, too."""
        cause = find_root_cause(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            message = f"{self.name}: the certificate of {address} is not trusted: {cause.verify_message}"
            raise UserError(message, hint="Name the certificate of its authority as caFile.") from error
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            message = f"{self.name}: {address} does not speak TLS"
            raise UserError(message, hint="Write http:// in its address, or name the port with TLS.") from error
        return f"{address} does not answer: {to_one_line(str(cause)) or type(cause).__name__}"

    def _unanswered_error(self, problem: str) -> ReconcilerError:
        message = f"{self.name}: {problem}. Whether it was done is not known"
        return UnansweredError(message, hint="Run the same command again: it checks first.")


def _parse_wait(headers: Mapping[str, str]) -> float | None:
    """Return the longest wait in seconds that a response tells; `Retry-After` may be a date, which is ignored."""
    texts = [headers.get(name, "") for name in _WAITS]
    return max((float(text) for text in texts if text.isdigit()), default=None)


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
