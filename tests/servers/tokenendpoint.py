"""A token endpoint for tests: client credentials in, an unsigned token out, which only test brokers accept."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs

CLIENT: Final = "reconciler"
SECRET: Final = "s3cret/with+signs"  # noqa: S105 - of a test
_LIFE_SECONDS: Final = 300


class LocalServer:
    """An HTTP server on a port of its own, in a thread."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class TokenEndpoint(LocalServer):
    """Answers at `url`; `asked` has the forms that came."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.fails_with: int | None = None
        self.moved_to: str | None = None
        super().__init__(self._handler())

    @property
    def url(self) -> str:
        return f"{super().url}/token"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.asked.append({})
                self.send_error(405)

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                endpoint.asked.append(form)
                status, answer = endpoint.answered(self.headers.get("Authorization", ""))
                body = json.dumps(answer).encode()
                self.send_response(302 if endpoint.moved_to else status)
                if endpoint.moved_to:
                    self.send_header("Location", endpoint.moved_to)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                del format, args

        return Handler

    def answered(self, authorization: str) -> tuple[int, dict[str, object]]:
        if self.fails_with is not None:
            return self.fails_with, {"error": "temporarily_unavailable"}
        if authorization.removeprefix("Basic ") not in _ACCEPTED:
            return 401, {"error": "invalid_client"}
        return 200, {"access_token": _token(), "token_type": "Bearer", "expires_in": _LIFE_SECONDS}


def _token() -> str:
    now = int(time.time())
    claims = {"sub": "admin", "iat": now, "exp": now + _LIFE_SECONDS, "scope": "kafka"}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
    return b".".join([*parts, b""]).decode()


_ACCEPTED: Final = {
    base64.b64encode(f"{CLIENT}:{secret}".encode()).decode()
    for secret in (SECRET, SECRET.replace("/", "%2F").replace("+", "%2B"))  # as it is, and as RFC 6749 wants it
}
