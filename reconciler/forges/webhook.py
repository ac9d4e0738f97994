"""Send `{"text": …}` to a webhook, such as Slack's or Mattermost's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from urllib3.exceptions import HTTPError, LocationValueError

from reconciler.errors import ReconcilerError, RetryableError, UsageError, UserError, find_root_cause
from reconciler.forges.environment import is_loopback
from reconciler.runtime.https import is_success, make_ssl_context, open_pool
from reconciler.runtime.retry import Backoff, Tries
from reconciler.runtime.text import to_one_line

_BACKOFF: Final = Backoff(0.25, 10.0, spread=0.5)
_ATTEMPTS: Final = 4
_TIMEOUT_S: Final = 20.0
_MAX_RESPONSE_BYTES: Final = 1 << 20
_MAX_REASON_CHARACTERS: Final = 200
_RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})


def send_message(environ: Mapping[str, str], name: str, text: str, *, tool: str, allows_http: bool = False) -> None:
    """Send a text to the URL in the environment variable `name`. The text may arrive twice.

    Raises:
        UsageError: The variable is not set, or is no URL.
        RetryableError: The webhook does not answer.
        UserError: The webhook refuses the message.
    """
    url = read_webhook_url(environ, name, allows_http=allows_http)
    headers = {"User-Agent": f"reconciler/{tool}"}
    tries = Tries(_BACKOFF, attempts=_ATTEMPTS)
    context = make_ssl_context(environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR"))
    while True:
        try:
            with (
                open_pool(url, context, headers) as pool,
                pool.request(
                    "POST", url, json={"text": text}, timeout=_TIMEOUT_S, redirect=False, preload_content=False
                ) as answer,
            ):
                content = answer.read(_MAX_RESPONSE_BYTES).decode(errors="replace")
        except HTTPError as error:
            problem: ReconcilerError = RetryableError(
                f"the webhook in {name} does not answer ({type(find_root_cause(error)).__name__})",
                hint="Run the same command again.",
            )
            is_final = isinstance(error, LocationValueError)
        else:
            if is_success(answer.status):
                return
            reason = to_one_line(content.replace(url, "***"))[:_MAX_REASON_CHARACTERS]
            message = f"the webhook in {name} answers {answer.status}: {reason or answer.reason}"
            problem = UserError(message, hint=f"See that {name} holds its whole address, and that it still exists.")
            is_final = answer.status not in _RETRIED_STATUSES
        if is_final or tries.has_ended:
            raise problem
        tries.wait()


def read_webhook_url(environ: Mapping[str, str], name: str, *, allows_http: bool = False) -> str:
    """Return the webhook URL in an environment variable."""
    url = environ.get(name, "").strip()
    if not url:
        hint = "--webhook takes the name of a variable that holds the address: the address is a secret."
        raise UsageError("the variable of --webhook is not set", hint=hint)
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(f"{name} holds no address of a webhook", hint="It begins with https://")
    if parts.scheme == "http" and not allows_http and not is_loopback(parts.hostname or ""):
        message = f"the webhook in {name} is not encrypted"
        raise UsageError(message, hint="Use https, or --allow-http where the network is trusted.")
    return url
