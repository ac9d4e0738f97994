"""Security settings of both client libraries: TLS, SASL and tokens.

Settings are picklable, for executors. Secrets are revealed only to open clients.
"""

from __future__ import annotations

import base64
import logging
import re
import tempfile
import threading
from calendar import timegm
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, strptime
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

from reconciler.errors import (
    BrokenInvariantError,
    NotAuthorizedError,
    ReconcilerError,
    RetryableError,
    UserError,
    find_root_cause,
)
from reconciler.objectstore.accounts import AzureTokens, CloudToken, GoogleTokens, load_aws_credentials
from reconciler.providers.secrets import Secret, build_account, check_readable, resolve_secret
from reconciler.resources.configs import SECRET_REFERENCE
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.retry import RateLimit
from reconciler.runtime.text import to_one_line

if TYPE_CHECKING:
    import ssl

    from reconciler.objectstore.settings import Account
    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import BrokersConnection, Cluster, HttpLoginSpec, SecuritySpec

# ruff: noqa: PLC0415


# The driver reads certificates and keys, because executors lack the files.


_MAX_BYTES: Final = 4 * 1024 * 1024
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Tls:
    """Trusted certificates (by default the system's), and the client's certificate and key, in PEM."""

    ca: str | None = None
    certificate: str | None = None
    key: Secret | None = None

    @classmethod
    def read_files(cls, declared: SecuritySpec | HttpLoginSpec, edge: Edge, *, where: str) -> Tls:
        """Read the declared files. Relative paths start at the workspace folder."""
        if declared.key_file is not None and declared.cert_file is None:
            message = f"{where}.keyFile: a key without a certificate"
            raise UserError(message, hint="Name the certificate in certFile, or leave keyFile out.")
        tls = cls(
            _read_certificates(declared.ca_file, edge, f"{where}.caFile"),
            _read_certificates(declared.cert_file, edge, f"{where}.certFile"),
            _read_key(declared.key_file or declared.cert_file, edge, f"{where}.keyFile"),
        )
        if tls.certificate is not None:
            tls.build_context(where=where)
        return tls

    def build_context(self, *, where: str) -> ssl.SSLContext:
        """Return an `ssl` context. Reject unusable certificates and mismatched keys."""
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if self.ca is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(cadata=self.ca)
            self._load_key_pair(context)
        except (ssl.SSLError, ValueError) as error:
            message = f"{where}: the certificates cannot be used: {getattr(error, 'reason', None) or error}"
            hint = "See that caFile, certFile and keyFile hold PEM, and that the key is the certificate's own."
            raise UserError(message, hint=hint) from error
        return context

    def _load_key_pair(self, context: ssl.SSLContext) -> None:
        if self.certificate is None or self.key is None:
            return
        with tempfile.TemporaryDirectory(prefix="reconciler-") as folder:
            certificate, key = Path(folder, "certificate"), Path(folder, "key")
            certificate.write_text(self.certificate)
            key.write_text(self.key.reveal())
            context.load_cert_chain(certificate, key, password=_reject_encrypted_key)

    def to_record_settings(self) -> dict[str, Any]:
        """Return librdkafka's settings, with a hidden key."""
        settings = {"ssl.ca.pem": self.ca, "ssl.certificate.pem": self.certificate, "ssl.key.pem": self.key}
        return {name: text for name, text in settings.items() if text is not None}


def _reject_encrypted_key() -> str:
    message = "the key is encrypted"
    raise ValueError(message)


def _read_certificates(name: str | None, edge: Edge, where: str) -> str | None:
    if name is None:
        return None
    text = _read_text(name, edge, where)
    if _CERTIFICATE not in text:
        message = f"{where}: {name} holds no certificate in PEM"
        raise UserError(message, hint=f"It must have a line {_CERTIFICATE}; convert other forms with openssl.")
    return text


def _read_key(name: str | None, edge: Edge, where: str) -> Secret | None:
    if name is None:
        return None
    text = _read_text(name, edge, where)
    if "PRIVATE KEY-----" not in text:
        message = f"{where}: {name} holds no private key in PEM"
        raise UserError(message, hint="Name the file of the key, or put the key into that of the certificate.")
    if "ENCRYPTED" in text:
        message = f"{where}: the key in {name} is encrypted, and reconciler cannot ask for its password"
        raise UserError(message, hint="Decrypt it with `openssl pkey`, and protect the file by its permissions.")
    return Secret(text)


def _read_text(name: str, edge: Edge, where: str) -> str:
    path = edge.folder / name
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
        raise UserError(f"{where}: {path} cannot be read: {why}", hint="Check the path and its permissions.") from error


CONNECT_MS: Final = 10_000
REQUEST_MS: Final = 60_000
_BACKOFF_MAX_MS: Final = 500
_HIGHEST_PORT: Final = 65_535
_ANONYMOUS: Final = "User:ANONYMOUS"
MSK: Final = "AWS_MSK_IAM"
"""Mechanism that clients send as OAUTHBEARER."""
KERBEROS: Final = "GSSAPI"
_CALLBACK: Final = "oauth_cb"

_IN_FLIGHT: Final = 1_000
"""Maximum concurrent requests per connection, above which the library reports no available broker."""
_PATIENT: Final = {
    "client_id": "reconciler",
    "reconnect_backoff_max_ms": _BACKOFF_MAX_MS,
    "bootstrap_timeout_ms": CONNECT_MS,
    "request_timeout_ms": REQUEST_MS,
    "max_in_flight_requests_per_connection": _IN_FLIGHT,
}


def build_admin_settings(declared: Cluster, edge: Edge) -> dict[str, Any]:
    """Return an admin client's settings, for `connection.open_admin`."""
    connection = _require_connection(declared)
    settings: dict[str, Any] = {"bootstrap_servers": list(_parse_servers(declared)), **_PATIENT}
    settings["rate"] = RateLimit.create(connection.requests_per_second)
    security, where = connection.find_security(), _where(declared)
    if security is None:
        return settings
    settings["security_protocol"] = security.protocol
    if security.protocol.endswith("SSL"):
        settings["tls"] = Tls.read_files(security, edge, where=where)
    return settings | _build_admin_login(connection, security, edge, where)


def build_record_settings(declared: Cluster, edge: Edge) -> dict[str, Any]:
    """Return a record client's confluent-kafka settings."""
    connection = _require_connection(declared)
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(_parse_servers(declared)),
        "client.id": "reconciler",
        "reconnect.backoff.max.ms": _BACKOFF_MAX_MS,
        "socket.connection.setup.timeout.ms": CONNECT_MS,
        "socket.timeout.ms": REQUEST_MS,
    }
    security, where = connection.find_security(), _where(declared)
    if security is None:
        return settings
    settings["security.protocol"] = security.protocol
    if security.protocol.endswith("SSL"):
        settings |= Tls.read_files(security, edge, where=where).to_record_settings()
    return settings | _build_record_login(connection, security, edge, where)


def build_token_source(declared: Cluster, edge: Edge) -> TokenSource | CloudTokenSource:
    """Return the source of the tokens of an OAUTHBEARER `security`, for an HTTP API. Needs no brokers."""
    security = _require_connection(declared).security
    if security is None or security.mechanism != "OAUTHBEARER":
        raise BrokenInvariantError(
            "a token is needed of a login without tokens", hint="Please report how it came to be"
        )
    return _build_token_source(security, edge, _where(declared))


def find_principal(declared: Cluster) -> str | None:
    """Return the client's principal; `None` if a certificate, token or API key determines it."""
    security = _require_connection(declared).find_security()
    if security is None:
        return _ANONYMOUS
    if security.principal is not None:
        return security.principal
    if security.mechanism is not None:
        is_user = security.mechanism not in {"OAUTHBEARER", MSK, KERBEROS} and not _is_reference(security.username)
        return f"User:{security.username}" if is_user else None
    return _ANONYMOUS if security.cert_file is None else None


def to_admin_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a record client's settings to an admin client's."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings["bootstrap.servers"].split(","),
        **_PATIENT,
        "security_protocol": settings.get("security.protocol", "PLAINTEXT"),
    }
    if options["security_protocol"].endswith("SSL"):
        options["tls"] = Tls(*(settings.get(f"ssl.{part}.pem") for part in ("ca", "certificate", "key")))
    if _CALLBACK in settings:
        tokens = settings[_CALLBACK]
        return options | {
            "sasl_mechanism": MSK if isinstance(tokens, MskTokenSource) else "OAUTHBEARER",
            "tokens": tokens,
        }
    mechanism = settings.get("sasl.mechanism")
    if mechanism == "OAUTHBEARER":
        tokens = TokenSource(
            settings["sasl.oauthbearer.token.endpoint.url"],
            settings["sasl.oauthbearer.client.id"],
            settings["sasl.oauthbearer.client.secret"] or None,
            settings.get("sasl.oauthbearer.scope"),
            Tls(ca=settings.get("https.ca.pem")),
        )
        return options | {"sasl_mechanism": mechanism, "tokens": tokens}
    if mechanism == KERBEROS:
        names = (settings.get(f"sasl.kerberos.{name}") for name in ("principal", "keytab", "service.name"))
        return options | {"sasl_mechanism": mechanism, "tickets": KerberosLogin(*names)}
    if mechanism is not None:
        options["sasl_mechanism"] = mechanism
        options["sasl_plain_username"] = settings["sasl.username"]
        options["sasl_plain_password"] = settings["sasl.password"]
    return options


def _build_admin_login(connection: BrokersConnection, security: SecuritySpec, edge: Edge, where: str) -> dict[str, Any]:
    if security.mechanism is None:
        return {}
    if security.mechanism == MSK:
        return {"sasl_mechanism": MSK, "tokens": MskTokenSource(connection.region() or "", _find_account(security))}
    if security.mechanism == KERBEROS:
        login = KerberosLogin(
            security.username,
            check_readable(security.keytab, edge.folder, what=f"{where}.keytab:"),
            security.service_name,
        )
        return {"sasl_mechanism": KERBEROS, "sasl_plain_username": security.username, "tickets": login}
    if security.mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": "OAUTHBEARER", "tokens": _build_token_source(security, edge, where)}
    return {
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": _resolve_username(security, edge),
        "sasl_plain_password": _resolve_secret(security.password, edge),
    }


def _find_account(security: SecuritySpec) -> Account | None:
    return build_account(security.account) if security.account else None


def _build_token_source(security: SecuritySpec, edge: Edge, where: str) -> TokenSource | CloudTokenSource:
    if security.token_provider is not None:
        return CloudTokenSource(security.token_provider, security.scope, _find_account(security))
    trusted = Tls(ca=Tls.read_files(security, edge, where=where).ca)
    url, client_id = _parse_endpoint(security, where), security.client_id or ""
    return TokenSource(url, client_id, _resolve_secret(security.client_secret, edge), security.scope, trusted)


def _build_record_login(
    connection: BrokersConnection, security: SecuritySpec, edge: Edge, where: str
) -> dict[str, Any]:
    if security.mechanism is None:
        return {}
    if security.mechanism == MSK:
        return {
            "sasl.mechanism": "OAUTHBEARER",
            _CALLBACK: MskTokenSource(connection.region() or "", _find_account(security)),
        }
    if security.mechanism == KERBEROS:
        keytab = check_readable(security.keytab, edge.folder, what=f"{where}.keytab:")
        kerberos = {
            "principal": security.username,
            "service.name": security.service_name,
            "keytab": keytab,
            # librdkafka runs this command to get and renew tickets; its own needs a keytab.
            "kinit.cmd": "true" if keytab is None else None,
        }
        named = {f"sasl.kerberos.{name}": value for name, value in kerberos.items() if value is not None}
        return {"sasl.mechanism": KERBEROS, **named}
    if security.mechanism != "OAUTHBEARER":
        return {
            "sasl.mechanism": security.mechanism,
            "sasl.username": _resolve_username(security, edge),
            "sasl.password": _resolve_secret(security.password, edge),
        }
    if security.token_provider is not None:
        return {"sasl.mechanism": "OAUTHBEARER", _CALLBACK: _build_token_source(security, edge, where)}
    ca = Tls.read_files(security, edge, where=where).ca
    options = {
        "sasl.oauthbearer.token.endpoint.url": _parse_endpoint(security, where),
        "sasl.oauthbearer.client.id": security.client_id,
        # The library requires a client secret. It may be empty.
        "sasl.oauthbearer.client.secret": _resolve_secret(security.client_secret, edge) or "",
        "sasl.oauthbearer.scope": security.scope,
        "https.ca.pem": None if ca is None else ca + _read_system_certificates(),
    }
    present = {name: value for name, value in options.items() if value is not None}
    return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", **present}


def _read_system_certificates() -> str:
    """Return the system's CA certificates in PEM. librdkafka ignores them once it gets another CA."""
    import ssl

    context = ssl.create_default_context()
    certificates = context.get_ca_certs(binary_form=True)
    return "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in certificates)


def _parse_endpoint(security: SecuritySpec, where: str) -> str:
    url = security.token_endpoint_url or ""
    if urlsplit(url).scheme not in {"https", "http"} or not urlsplit(url).hostname:
        message = f"{where}.tokenEndpointUrl: {url!r} is not a web address"
        raise UserError(message, hint="Write it like https://login.example.com/oauth2/token")
    return url


def _resolve_secret(reference: str | None, edge: Edge) -> Secret | None:
    return None if reference is None else resolve_secret(reference, edge.environ)


def _resolve_username(security: SecuritySpec, edge: Edge) -> str | Secret | None:
    """Return the username. Only that of a login by API key is a reference."""
    return _resolve_secret(security.username, edge) if _is_reference(security.username) else security.username


def _is_reference(text: str | None) -> bool:
    return text is not None and SECRET_REFERENCE.fullmatch(text) is not None


def _require_connection(declared: Cluster) -> BrokersConnection:
    return cast("BrokersConnection", declared.spec.connection)


def _where(declared: Cluster) -> str:
    return f"{declared.address}: spec.{declared.spec.provider}.security"


def _parse_servers(declared: Cluster) -> tuple[str, ...]:
    servers = tuple(server.strip() for server in _require_connection(declared).bootstrap_servers)
    if not servers:
        message = f"{declared.address}: spec.{declared.spec.provider}.bootstrapServers is missing: no brokers are known"
        raise UserError(
            message, hint="Add some brokers of the cluster, for example `bootstrapServers: [broker-1:9092]`."
        )
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= _HIGHEST_PORT:
            where = f"{declared.address}: spec.{declared.spec.provider}.bootstrapServers"
            message = f"{where}: {server!r} is not the address of a broker"
            raise UserError(message, hint="Write each as host:port, for example broker-1:9092")
    return servers


_BASE: Final = {
    "client.id": "reconciler",
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "retry.backoff.ms": 50,
}
_quiet: Final = logging.getLogger("reconciler.kafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def reveal_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record client's settings with plaintext secrets and common defaults."""
    clear: dict[str, Any] = {
        name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()
    }
    if clear.get("sasl.mechanism") == KERBEROS:
        _check_library_speaks_kerberos()
    if _CALLBACK in clear:
        clear[_CALLBACK].get_token()  # The library would time out without credentials, so this call reports them.
    return {**_BASE, **clear, "logger": _quiet}


def _check_library_speaks_kerberos() -> None:
    from confluent_kafka import KafkaException, Producer

    try:
        Producer({"builtin.features": "sasl_gssapi", "logger": _quiet})
    except KafkaException as error:
        message = f"security.mechanism {KERBEROS}: this machine's confluent-kafka was built without Kerberos"
        hint = (
            "Administration works without it, records do not. Build it against a librdkafka with Kerberos: see "
            "docs/guides/connection-accounts.md."
        )
        raise UserError(message, hint=hint) from error


_SECONDS: Final = 10
_MAX_TOKEN_BYTES: Final = 1024 * 1024
_EARLY: Final = 0.8
"""Fraction of a token's lifetime after which it is renewed."""
_LIFE_SECONDS: Final = 300
_MESSAGE_CHARS: Final = 200
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(slots=True)
class TokenSource:
    """Source of one client's OAUTHBEARER tokens by client credentials (RFC 6749, 4.4).

    Picklable; each process requests its own tokens.
    """

    url: str
    client_id: str
    client_secret: Secret | None
    scope: str | None
    tls: Tls = field(default_factory=Tls)
    """Certificates trusted in addition to the system's."""
    _token: str | None = field(default=None, init=False, repr=False)
    _renew_at: float = field(default=0.0, init=False, repr=False)
    _lock: Any = field(default=None, init=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenSource, (self.url, self.client_id, self.client_secret, self.scope, self.tls)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def get_token(self, refused: str = "") -> str:
        """Return a valid token, renewed after 80 % of its lifetime, or if it is the one that a server refused."""
        with self._lock:
            if self._token in {None, refused} or monotonic() > self._renew_at:
                requested_at = monotonic()
                self._token, life = self._request_token()
                self._renew_at = requested_at + life * _EARLY
            return self._token

    def _request_token(self) -> tuple[str, float]:
        import json

        body = self._post_form()
        try:
            answer = json.loads(body)
            return str(answer["access_token"]), float(answer.get("expires_in", _LIFE_SECONDS))
        except (ValueError, KeyError, TypeError) as error:
            message = f"{self._where}: the answer holds no access_token"
            raise UserError(message, hint="See that tokenEndpointUrl names the token endpoint itself.") from error

    def _post_form(self) -> bytes:
        from urllib3.exceptions import HTTPError

        from reconciler.runtime.https import is_success, open_pool

        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        headers = {
            "Accept": "application/json",
            "Authorization": self._build_authorization(),
            "Content-Type": "application/x-www-form-urlencoded",
        }
        try:
            with (
                open_pool(self.url, self._build_context(), headers) as pool,
                # A redirect could send the secret to another address, so it is not followed.
                pool.request(
                    "POST", self.url, body=urlencode(form), timeout=_SECONDS, redirect=False, preload_content=False
                ) as answer,
            ):
                body = answer.read(_MAX_TOKEN_BYTES)
        except HTTPError as error:
            message = f"{self._where} does not answer: {find_root_cause(error)}"
            raise RetryableError(
                message, hint="Check tokenEndpointUrl, and that it can be reached from here."
            ) from error
        if not is_success(answer.status):
            raise self._build_refusal(answer.status, body)
        return body

    def _build_refusal(self, status: int, body: bytes) -> ReconcilerError:
        text = " ".join(body.decode(errors="replace").split())[:_MESSAGE_CHARS]
        message = f"{self._where} answers {status}" + (f": {text}" if text else "")
        if status in _BUSY:
            return RetryableError(message, hint="Run the same command again.")
        hint = "Check tokenEndpointUrl, clientId, clientSecret and scope in `security` of the Cluster."
        return NotAuthorizedError(message, hint=hint)

    def _build_authorization(self) -> str:
        """Return the Basic authorization of URL-encoded name and secret (RFC 6749, 2.3.1)."""
        secret = "" if self.client_secret is None else self.client_secret.reveal()
        pair = f"{quote(self.client_id, safe='')}:{quote(secret, safe='')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    def _build_context(self) -> Any:
        if urlsplit(self.url).scheme != "https":
            return None
        import ssl

        context = ssl.create_default_context()
        if self.tls.ca is not None:
            context.load_verify_locations(cadata=self.tls.ca)
        return context

    @property
    def _where(self) -> str:
        return f"the token endpoint {self.url}"


@dataclass(slots=True)
class CloudTokenSource:
    """Source of OAUTHBEARER tokens of `azure` or `google`, by the cloud's library. Picklable.

    Google's Managed Kafka takes access tokens in the form of a JWT with Google's own header.
    """

    provider: str
    scope: str | None
    account: Account | None
    _tokens: AzureTokens | GoogleTokens = field(init=False, repr=False)
    _last: tuple[str, str] = field(default=("", ""), init=False, repr=False)
    """The token that was sent last, and the cloud's token in it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return CloudTokenSource, (self.provider, self.scope, self.account)

    def __post_init__(self) -> None:
        is_azure = self.provider == "azure"
        self._tokens = AzureTokens(self.account, self.scope or "") if is_azure else GoogleTokens(self.account)

    def get_token(self, refused: str = "") -> str:
        """Return a valid token, not the one that a server refused."""
        return self._request_token(refused)[0]

    def __call__(self, _: str) -> tuple[str, float]:
        """Return a valid token and its expiry, in seconds since 1970."""
        return self._request_token("")

    def _request_token(self, refused: str) -> tuple[str, float]:
        sent, held = self._last
        token = self._tokens.get_token(refused=held if refused == sent else "")
        text = token.text if self.provider == "azure" else _build_google_bearer(token)
        self._last = text, token.text
        return text, token.expires_at


def _build_google_bearer(token: CloudToken) -> str:
    import json
    from time import time  # noqa: TID251 - brokers compare it with their own time

    claims = {"exp": int(token.expires_at), "iat": int(time()), "iss": "Google", "scope": "kafka", "sub": token.subject}
    header = {"alg": "GOOG_OAUTH2_TOKEN", "typ": "JWT"}
    parts = (json.dumps(header), json.dumps(claims), token.text)
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


_MSK_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class MskTokenSource:
    """Source of Amazon MSK tokens: connect requests presigned by an AWS account's credentials. Picklable."""

    region: str
    account: Account | None = None

    def get_token(self) -> str:
        """Return a new token without its expiry."""
        return self("")[0]

    def __call__(self, _: str) -> tuple[str, float]:
        """Return a new token and its expiry, in seconds since 1970."""
        from botocore.auth import SIGV4_TIMESTAMP, SigV4QueryAuth
        from botocore.awsrequest import AWSRequest

        domain = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        request = AWSRequest("GET", f"https://kafka.{self.region}.{domain}/?Action=kafka-cluster%3AConnect")
        credentials = _find_aws_credentials(self.account, self.region)
        SigV4QueryAuth(credentials, "kafka-cluster", self.region, expires=_MSK_SECONDS).add_auth(request)
        # The User-Agent is appended without a signature, as AWS's own signers do.
        url = f"{request.url}&User-Agent=reconciler"
        signed_at = timegm(strptime(request.context["timestamp"], SIGV4_TIMESTAMP))
        return base64.urlsafe_b64encode(url.encode()).decode().rstrip("="), signed_at + _MSK_SECONDS


def _find_aws_credentials(account: Account | None, region: str) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError  # noqa: A004

    try:
        credentials = load_aws_credentials(account, region)
        if credentials is not None:
            return credentials.get_frozen_credentials()
    except (ConnectionError, HTTPClientError) as error:
        message = f"{MSK}: AWS does not answer: {to_one_line(str(error))}"
        raise RetryableError(message, hint="Check the network, then run the same command again.") from error
    except (BotoCoreError, ClientError) as error:
        message = f"{MSK}: the AWS credentials cannot be used: {to_one_line(str(error))}"
        hint = "Correct the AWS profile, role or environment, or log in again."
        raise NotAuthorizedError(message, hint=hint) from error
    hint = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in (aws sso login)."
    raise NotAuthorizedError(f"{MSK}: no AWS credentials were found", hint=hint)


_NO_KDC: Final = "Cannot contact any KDC"
_MINOR: Final = re.compile(r"Minor \(\d+\): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """Login by Kerberos: a principal with its keytab, or the ticket cache of this machine. Picklable."""

    principal: str | None = None
    keytab: str | None = None
    service_name: str | None = None

    def open_context(self, host: str) -> tuple[Any, bytes]:
        """Return a security context for a broker and the first token. Tickets are renewed from the keytab."""
        try:
            import gssapi
        except (ImportError, OSError) as error:
            message = (
                f"{KERBEROS} needs the package gssapi and the system's Kerberos libraries, which are not installed"
            )
            hint = "Install them: apt-get install libkrb5-dev gcc, then pip install 'stream-reconciler[kerberos]'."
            raise UserError(message, hint=hint) from error
        service = f"{self.service_name or 'kafka'}@{host}"
        try:
            name = gssapi.Name(service, gssapi.NameType.hostbased_service).canonicalize(gssapi.MechType.kerberos)
            context = gssapi.SecurityContext(name=name, creds=self._acquire_tickets(), usage="initiate")
            return context, context.step(None)
        except gssapi.exceptions.GSSError as error:
            raise self._translate(error, service) from error

    def _acquire_tickets(self) -> Any:
        import gssapi

        name = None if self.principal is None else gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)
        if self.keytab is None:
            return gssapi.Credentials(name=name, usage="initiate")
        store = {"client_keytab": f"FILE:{self.keytab}", "ccache": f"MEMORY:reconciler-{self.principal}"}
        return gssapi.Credentials(name=name, usage="initiate", store=store)

    def _translate(self, error: Exception, service: str) -> ReconcilerError:
        match = _MINOR.search(str(error))
        reason = to_one_line(match[1] if match else str(error))
        message = f"{KERBEROS}: {self.principal or 'the ticket cache'} gets no ticket for {service}: {reason}"
        if _NO_KDC in reason:
            return RetryableError(message, hint="Check the network and krb5.conf, then run the same command again.")
        hint = "Check `username`, `keytab` and `serviceName` in `security` of the Cluster, or run kinit."
        return NotAuthorizedError(message, hint=hint)
