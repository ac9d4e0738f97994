"""Local servers of the clouds' logins: AWS STS, Google's tokens and service accounts, Azure's managed identities."""

from __future__ import annotations

import base64
import datetime as dt
import json
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from reconciler.objectstore.settings import Credentials
from tests.servers.tokenendpoint import LocalServer

ROLE: Final = "arn:aws:iam::111122223333:role/topics"
EXTERNAL_ID: Final = "west-7"
SERVICE_ACCOUNT: Final = "topics@shop.iam.gserviceaccount.com"
CLIENT_ID: Final = "6f1d4c1e-1c5b-4c3c-9d55-0f5f6c1c2b3a"
OWN_TOKEN: Final = "token-of-the-machine"  # noqa: S105 - of a test
_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"


class AccountServer(LocalServer):
    """Answers as STS and as Google's and Azure's token servers; `requests` holds path and fields of each request."""

    def __init__(self, life_seconds: float = 3600) -> None:
        self.life_seconds = life_seconds
        self.keys: list[Credentials] = []
        """Keys of the role, one for each AssumeRole; the last is used again."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.sent_tokens: list[str] = []
        """Tokens in requests for objects, of which there are none here."""
        self.tokens: list[str] = []
        """Tokens issued by Google and Azure."""
        super().__init__(self._build_handler())

    def count(self, path: str) -> int:
        """Return the number of requests whose path ends so."""
        return sum(requested.endswith(path) for requested, _ in self.requests)

    def answer(self, path: str, fields: dict[str, str], authorization: str) -> tuple[int, str]:
        if fields.get("Action") == "AssumeRole":
            return self._assume(fields)
        if path == "/token":
            return 200, json.dumps({"access_token": OWN_TOKEN, "expires_in": 3600, "token_type": "Bearer"})
        if path.endswith(":generateAccessToken"):
            return self._impersonate(path, authorization)
        if path not in {"/msi", "/metadata/identity/oauth2/token"}:
            self.sent_tokens.append(authorization.removeprefix("Bearer "))
            return 404, "<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
        if fields.get("client_id") != CLIENT_ID:
            return 400, json.dumps({"error": "invalid_request", "error_description": "Identity not found"})
        until = str(int(time.time() + self.life_seconds))
        return 200, json.dumps(
            {
                "access_token": self._issue(),
                "client_id": CLIENT_ID,
                "expires_in": str(int(self.life_seconds)),
                "expires_on": until,
                "resource": fields.get("resource", ""),
                "token_type": "Bearer",
            }
        )

    def _assume(self, fields: dict[str, str]) -> tuple[int, str]:
        if fields["RoleArn"] != ROLE or fields.get("ExternalId") != EXTERNAL_ID:
            message = f"User: arn:aws:iam::111122223333:user/me is not authorized to perform: sts:AssumeRole on {ROLE}"
            return 403, (
                '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
                f"<Code>AccessDenied</Code><Message>{message}</Message></Error></ErrorResponse>"
            )
        keys = self.keys.pop(0) if len(self.keys) > 1 else self.keys[0]
        until = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.life_seconds)).strftime(_FORM)
        token = "" if keys.token is None else keys.token.text
        return 200, (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
            f"<AccessKeyId>{keys.access_key}</AccessKeyId><SecretAccessKey>{keys.secret_key.text}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{until}</Expiration></Credentials><AssumedRoleUser>"
            f"<Arn>{ROLE}</Arn><AssumedRoleId>A:me</AssumedRoleId></AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>"
        )

    def _impersonate(self, path: str, authorization: str) -> tuple[int, str]:
        if SERVICE_ACCOUNT not in path or authorization != f"Bearer {OWN_TOKEN}":
            error = {"code": 403, "message": "Permission 'iam.serviceAccounts.getAccessToken' denied"}
            return 403, json.dumps({"error": {**error, "status": "PERMISSION_DENIED"}})
        until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.life_seconds)
        return 200, json.dumps({"accessToken": self._issue(), "expireTime": until.strftime(_FORM)})

    def _issue(self) -> str:
        """Return an unsigned token, which only test brokers accept."""
        now = int(time.time())
        claims = {"sub": "admin", "iat": now, "exp": now + int(self.life_seconds), "jti": str(len(self.tokens))}
        parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
        self.tokens.append(b".".join([*parts, b""]).decode())
        return self.tokens[-1]

    def _build_handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

            def _answer(self, body: str) -> None:
                parts = urlsplit(self.path)
                form = parse_qs(parts.query) | ({} if body.startswith("{") else parse_qs(body))
                fields = {name: values[0] for name, values in form.items()}
                server.requests.append((parts.path, fields))
                status, text = server.answer(parts.path, fields, self.headers.get("Authorization", ""))
                self.send_response(status)
                self.send_header("Content-Type", "application/json" if text.startswith("{") else "text/xml")
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                del format, args

        return Handler


def write_google_login(path: Path, server: AccountServer) -> None:
    """Write a file of credentials that get their tokens from a server."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
    login = {"type": "service_account", "client_email": "me@shop.iam.gserviceaccount.com", "private_key": pem}
    path.write_text(json.dumps({**login, "token_uri": f"{server.url}/token", "project_id": "shop"}))
