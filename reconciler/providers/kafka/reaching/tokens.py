"""Tokens of OAUTHBEARER by client credentials (RFC 6749, 4.4), for the client that does not get them by itself."""

from __future__ import annotations

import base64
import threading
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UserError
from reconciler.providers.kafka.reaching.tls import Tls

if TYPE_CHECKING:
    from reconciler.providers.secrets import Secret

_SECONDS: Final = 10
"""For the whole answer of the endpoint's socket."""
_MAX_BYTES: Final = 1024 * 1024
_EARLY: Final = 0.8
"""A token is used for this part of its life."""
_LIFE_SECONDS: Final = 300
"""Of a token whose endpoint does not say."""
_SAID: Final = 200
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(slots=True)
class Tokens:
    """Where the tokens of one client come from. It can be pickled: each process asks for its own."""

    url: str
    client_id: str
    client_secret: Secret | None
    scope: str | None
    tls: Tls = field(default_factory=Tls)
    """Trusted beside what the system trusts."""
    _token: str | None = field(default=None, init=False, repr=False)
    _until: float = field(default=0.0, init=False, repr=False)
    _asking: Any = field(default=None, init=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokens, (self.url, self.client_id, self.client_secret, self.scope, self.tls)

    def __post_init__(self) -> None:
        self._asking = threading.Lock()

    def token(self) -> str:
        """Return one that is good for a while.

        Raises:
            NotAuthorizedError: The endpoint does not accept the client.
            RetryableError: It does not answer.
            UserError: It answers something else.
        """
        with self._asking:
            if self._token is None or monotonic() > self._until:
                asked = monotonic()
                self._token, life = self._asked()
                self._until = asked + life * _EARLY
            return self._token

    def _asked(self) -> tuple[str, float]:
        import json  # noqa: PLC0415 - only who asks pays

        said = self._answer()
        try:
            answer = json.loads(said)
            return str(answer["access_token"]), float(answer.get("expires_in", _LIFE_SECONDS))
        except (ValueError, KeyError, TypeError) as error:
            message = f"{self._where}: the answer holds no access_token"
            raise UserError(message, hint="See that tokenEndpointUrl names the token endpoint itself.") from error

    def _answer(self) -> bytes:
        from urllib.error import HTTPError  # noqa: PLC0415 - only who asks pays
        from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener  # noqa: PLC0415 - as above

        class Staying(HTTPRedirectHandler):
            """Follows nobody to another address: the secret is for this one."""

            def redirect_request(self, *_: Any) -> None:
                """Return nothing to ask instead."""

        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        request = Request(  # noqa: S310 - the scheme is checked where the settings are made
            self.url, urlencode(form).encode(), {"Accept": "application/json", "Authorization": self._basic()}
        )
        try:
            with build_opener(Staying, HTTPSHandler(context=self._context())).open(request, timeout=_SECONDS) as answer:
                return bytes(answer.read(_MAX_BYTES))
        except HTTPError as error:
            raise self._refused(error) from error
        except OSError as error:
            why = getattr(error, "reason", error)
            message = f"{self._where} does not answer: {why}"
            raise RetryableError(
                message, hint="Check tokenEndpointUrl, and that it can be reached from here."
            ) from error

    def _refused(self, error: Any) -> ReconcilerError:
        said = " ".join(error.read(_MAX_BYTES).decode(errors="replace").split())[:_SAID]
        message = f"{self._where} answers {error.code}" + (f": {said}" if said else "")
        if error.code in _BUSY:
            return RetryableError(message, hint="Run the same command again.")
        hint = "Check tokenEndpointUrl, clientId, clientSecret and scope in spec.kafka.security."
        return NotAuthorizedError(message, hint=hint)

    def _basic(self) -> str:
        """Return who asks; names and secrets are encoded first (RFC 6749, 2.3.1)."""
        secret = "" if self.client_secret is None else self.client_secret.reveal()
        pair = f"{quote(self.client_id, safe='')}:{quote(secret, safe='')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    def _context(self) -> Any:
        if urlsplit(self.url).scheme != "https":
            return None
        import ssl  # noqa: PLC0415 - only who encrypts pays

        context = ssl.create_default_context()
        if self.tls.ca is not None:
            context.load_verify_locations(cadata=self.tls.ca)
        return context

    @property
    def _where(self) -> str:
        return f"the token endpoint {self.url}"
