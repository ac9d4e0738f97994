"""The Cluster kind: connection, secrets, locations and tiered storage."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, cast

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from reconciler.resources.acls import Principal, fold_case
from reconciler.resources.address import Address, cluster_address
from reconciler.resources.base import (
    Count,
    DurationMs,
    FieldProblem,
    Flag,
    Many,
    Model,
    NameOnly,
    SizeBytes,
    build_refusal_error,
)
from reconciler.resources.configs import NO_REFERENCE, SECRET_REFERENCE, ClusterProperties


def check_reference(value: str) -> str:
    """Return `value`. Raise `ValueError` unless it is a reference, because a literal secret would enter git."""
    if not SECRET_REFERENCE.fullmatch(value):
        raise build_refusal_error(FieldProblem(NO_REFERENCE, hint="Write ${env:NAME} or ${file:/path}"))
    return value


SecretReference = Annotated[
    str,
    AfterValidator(check_reference),
    Field(
        examples=["${env:KAFKA_PASSWORD}"], json_schema_extra={"secret": True, "pattern": r"^\$\{(env|file):[^}]+\}$"}
    ),
]


SCHEMES: Final = ("file", "s3", "gs", "az", "memory")
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)


_WORKSPACE_FOLDER: Final = "/" + "\0/" * 64
"""Placeholder for the unknown folder of reconciler.yaml, deep enough for any `..` and unlike any real name."""


_STORAGES: Final = {
    "s3": "Amazon S3",
    "gs": "Google Cloud Storage",
    "az": "Azure Blob Storage",
    "file": "a folder",
    "memory": "memory",
}
_ACCOUNT_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "s3": frozenset({"profile", "roleArn", "externalId", "sessionName"}),
    "gs": frozenset({"serviceAccount"}),
    "az": frozenset({"clientId"}),
}
_ROLE: Final = r"^arn:aws[a-z-]*:iam::\d{12}:role/\S+$"


class AccountSpec(Model):
    """Cloud account of a login, by names only. Its keys and tokens come from the cloud and are never stored."""

    profile: str | None = Field(default=None, min_length=1, description="AWS profile.", examples=["west"])
    role_arn: str | None = Field(
        default=None,
        pattern=_ROLE,
        description="AWS role to assume, with the keys of the profile or machine.",
        examples=["arn:aws:iam::111122223333:role/topics"],
    )
    external_id: str | None = Field(
        default=None,
        min_length=2,
        description="External id that the role's trust policy requires.",
        examples=["west-7"],
    )
    session_name: str | None = Field(
        default=None,
        pattern=r"^[\w+=,.@-]{2,64}$",
        description="Name of the role's sessions in CloudTrail; absent: `reconciler`.",
        examples=["nightly"],
    )
    service_account: str | None = Field(
        default=None,
        pattern=r"^[^@\s]+@[^@\s]+$",
        description="Google service account to impersonate.",
        examples=["topics@shop.iam.gserviceaccount.com"],
    )
    client_id: str | None = Field(
        default=None,
        min_length=1,
        description="Client id of an Azure managed identity.",
        examples=["6f1d4c1e-1c5b-4c3c-9d55-0f5f6c1c2b3a"],
    )

    def find_problems(self, cloud: str, storage: str) -> Iterator[FieldProblem]:
        """Yield fields that have no meaning for a cloud (`s3`, `gs` or `az`), which messages call `storage`."""
        names = self.model_dump(by_alias=True, exclude_none=True)
        if not names:
            yield FieldProblem("names no account", "Add a field, or take it out", ("account",))
        for name in names:
            if name not in _ACCOUNT_FIELDS.get(cloud, ()):
                yield FieldProblem(f"has no meaning for {storage}", "Take it out", ("account", name))
        for name in ("externalId", "sessionName"):
            if name in names and self.role_arn is None:
                yield FieldProblem("means nothing without roleArn", "Add roleArn, or take it out", ("account", name))


class LocationSpec(Model):
    """Folder or bucket. Absent settings come from the cloud's environment variables or profile."""

    url: str = Field(
        description="`file://folder` (relative to reconciler.yaml), `file:///folder`, `s3://bucket/prefix`, "
        "`gs://bucket/prefix` (Google Cloud Storage) or `az://container/prefix` (Azure Blob Storage).",
        examples=["s3://topics/prod", "gs://topics/prod", "file://.reconciler"],
    )
    region: str | None = Field(default=None, description="AWS region; of S3 alone.", examples=["eu-west-1"])
    endpoint: str | None = Field(
        default=None,
        description="Endpoint of an S3-compatible store, or of an Azure storage account.",
        examples=["http://127.0.0.1:8333"],
    )
    force_path_style: Flag | None = Field(
        default=None, description="Address buckets by path, not by host name; of S3 alone.", examples=[True]
    )
    kms_key_id: str | None = Field(
        default=None, description="Key objects are encrypted under (SSE-KMS); of S3 alone.", examples=["alias/topics"]
    )
    account: AccountSpec | None = Field(
        default=None,
        description="Cloud account to log in with; absent: that of the environment or machine.",
        examples=[{"roleArn": "arn:aws:iam::111122223333:role/topics"}],
    )

    @field_validator("url")
    @classmethod
    def _check_scheme(cls, url: str) -> str:
        parts = _URL.fullmatch(url)
        if parts is None or parts[1] not in SCHEMES or not parts[2]:
            raise build_refusal_error(
                FieldProblem(
                    f"{url!r} is not a location",
                    hint="Write file://folder, file:///folder, s3://bucket/prefix, gs://bucket/prefix or "
                    "az://container/prefix",
                )
            )
        return url

    @model_validator(mode="after")
    def _check_cloud_fields(self) -> LocationSpec:
        scheme = self.url.partition("://")[0]
        storage = _STORAGES[scheme]
        of_s3 = {"region": self.region, "forcePathStyle": self.force_path_style, "kmsKeyId": self.kms_key_id}
        s3_fields = [name for name, value in of_s3.items() if value is not None and scheme in {"gs", "az"}]
        problems = [FieldProblem(f"has no meaning for {storage}", "Take it out", (name,)) for name in s3_fields]
        if self.account is not None:
            problems.extend(self.account.find_problems(scheme, storage))
        if problems:
            raise build_refusal_error(*problems)
        return self


def _wrap_url(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


Location = Annotated[LocationSpec, BeforeValidator(_wrap_url, json_schema_input_type=str | LocationSpec)]
"""URL, or a mapping with `url` and settings."""


def urls_overlap(one: str, other: str) -> bool:
    """Return whether two URLs are equal, or one contains the other.

    Symbolic links are not followed. A relative and an absolute URL never overlap.
    """
    (scheme, first), (other_scheme, second) = _split_url(one), _split_url(other)
    shared = min(len(first), len(second))
    return scheme == other_scheme and first[:shared] == second[:shared]


def _split_url(url: str) -> tuple[str, tuple[str, ...]]:
    scheme, _, rest = url.partition("://")
    if scheme == "memory":
        return scheme, (rest,)
    path = posixpath.normpath(posixpath.join(_WORKSPACE_FOLDER, rest)) if scheme == "file" else rest
    return scheme, tuple(name for name in path.split("/") if name)


FLAT_SEPARATOR: Final = "."
"""Default replacement of `:` in topic names on platforms without namespaces."""


def _to_upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _check_separator(separator: str) -> str:
    if separator not in {".", "_", "-"}:
        message = "not one of '.', '_' and '-'"
        raise ValueError(message)
    return separator


NamespaceSeparator = Annotated[
    str,
    AfterValidator(_check_separator),
    Field(
        description="What ':' becomes in topic names.",
        examples=["."],
        json_schema_extra={"enum": [".", "_", "-"]},
    ),
]


def _check_servers(servers: tuple[str, ...]) -> tuple[str, ...]:
    """Reject comma-separated text, which would be resolved as one host name."""
    for position, server in enumerate(servers):
        if "," in server:
            words = ", ".join(part.strip() for part in server.split(","))
            raise build_refusal_error(
                FieldProblem("names several brokers in one text", f"Write a list: [{words}]", (position,))
            )
    return servers


class Connection(Model):
    """Connection to a cluster. Each platform has its own block."""

    def find_location(self) -> LocationSpec | None:
        """Return the cluster's folder or bucket; `None` for brokers."""
        return None

    def find_security(self) -> SecuritySpec | None:
        """Return the authentication for a Kafka listener, if any."""
        return None

    def find_separator(self) -> str | None:
        """Return the replacement of `:` in topic names; `None` if the platform has namespaces."""
        return FLAT_SEPARATOR

    def build_identity(self) -> tuple[str, ...]:
        """Return a value that two connections share only if both reach one cluster; empty for a location."""
        return ()

    def list_files(self) -> Iterator[tuple[str, str]]:
        """Yield each field that names a certificate or key, and the file."""
        yield from ()

    def list_secret_targets(self) -> frozenset[str]:
        """Return the addresses that receive secrets."""
        return frozenset()

    def list_secrets(self) -> Iterator[tuple[str, str, frozenset[str]]]:
        """Yield each field with a secret, its reference, and the addresses that receive the secret."""
        yield from ()


class EmbeddedConnection(Connection):
    """Location of an embedded cluster."""

    root: Location = Field(description="The folder or bucket that is the cluster.", examples=["file://.clusters/west"])

    def find_location(self) -> LocationSpec | None:
        """Return the cluster's root."""
        return self.root

    def find_separator(self) -> str | None:
        """Return `None`, because names are stored unchanged."""
        return None


_TOKEN_CLOUDS: Final = {"google": "gs", "azure": "az"}


class SecuritySpec(Model):
    """Authentication for a Kafka listener."""

    protocol: Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(_to_upper)] = Field(
        default="PLAINTEXT", description="Encryption and authentication of the listener.", examples=["SASL_SSL"]
    )
    mechanism: (
        Annotated[
            Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"],
            BeforeValidator(_to_upper),
        ]
        | None
    ) = Field(default=None, description="How a SASL listener authenticates.", examples=["SCRAM-SHA-512"])
    username: str | None = Field(
        default=None, description="Who logs in; with GSSAPI the Kerberos principal.", examples=["reconciler"]
    )
    password: SecretReference | None = Field(default=None, description="Reference to the password.")
    keytab: str | None = Field(
        default=None,
        description="Keytab of the principal, for GSSAPI; absent: the ticket cache of the machine.",
        examples=["/etc/kafka/reconciler.keytab"],
    )
    service_name: str | None = Field(
        default=None, description="Kerberos service of the brokers, for GSSAPI; absent: `kafka`.", examples=["kafka"]
    )
    allow_plaintext_passwords: Flag | None = Field(
        default=None,
        description="Whether passwords and tokens may go over a connection without encryption.",
        examples=[True],
    )
    ca_file: str | None = Field(
        default=None, description="Certificates to trust (PEM).", examples=["/etc/kafka/ca.pem"]
    )
    cert_file: str | None = Field(default=None, description="Our certificate (PEM).", examples=["/etc/kafka/me.pem"])
    key_file: str | None = Field(default=None, description="Its private key (PEM).", examples=["/etc/kafka/me.key"])
    token_endpoint_url: str | None = Field(
        default=None, description="Where OAUTHBEARER gets its tokens.", examples=["https://login.example.com/token"]
    )
    token_provider: Annotated[Literal["azure", "google"], BeforeValidator(fold_case)] | None = Field(
        default=None,
        description="Cloud whose library gets the tokens of OAUTHBEARER, instead of tokenEndpointUrl.",
        examples=["google"],
    )
    client_id: str | None = Field(default=None, description="OAuth client.", examples=["reconciler"])
    client_secret: SecretReference | None = Field(default=None, description="Reference to its secret.")
    scope: str | None = Field(default=None, description="OAuth scope.", examples=["kafka"])
    region: str | None = Field(
        default=None,
        description="AWS region of the brokers, for AWS_MSK_IAM; absent: that in their names.",
        examples=["eu-west-1"],
    )
    account: AccountSpec | None = Field(
        default=None,
        description="Cloud account of AWS_MSK_IAM or tokenProvider; absent: that of the environment or machine.",
        examples=[{"roleArn": "arn:aws:iam::111122223333:role/reconciler"}],
    )
    principal: Principal | None = Field(
        default=None,
        description="As whom the brokers know us, where that is not `User:` and the username: with a certificate, "
        "OAUTHBEARER or AWS_MSK_IAM. Links with `protect: acl` need it.",
        examples=["User:CN=reconciler"],
    )

    @model_validator(mode="after")
    def _check_complete(self) -> SecuritySpec:
        problems = [FieldProblem(*what) for what in self._find_missing()]
        if self.account is not None:
            cloud = "s3" if self.mechanism == "AWS_MSK_IAM" else _TOKEN_CLOUDS.get(self.token_provider or "", "")
            storage = f"tokenProvider {self.token_provider}" if self.token_provider else self.mechanism or self.protocol
            problems.extend(self.account.find_problems(cloud, storage))
        if problems:
            raise build_refusal_error(*problems)
        return self

    def _find_missing(self) -> Iterator[tuple[str, str, tuple[str]]]:
        is_sasl = self.protocol.startswith("SASL_")
        if is_sasl and self.mechanism is None:
            yield f"is required with {self.protocol}", "For example `mechanism: SCRAM-SHA-512`", ("mechanism",)
        if self.mechanism is not None and not is_sasl:
            yield f"means nothing with {self.protocol}", "Use SASL_SSL, or leave it out", ("mechanism",)
        needed = {
            None: {},
            "AWS_MSK_IAM": {},
            "GSSAPI": {} if self.keytab is None else {"username": self.username},
            "OAUTHBEARER": {
                "azure": {"scope": self.scope},
                "google": {},
                None: {"tokenEndpointUrl": self.token_endpoint_url, "clientId": self.client_id},
            }[self.token_provider],
            "PLAIN": {"username": self.username, "password": self.password},
            "SCRAM-SHA-256": {"username": self.username, "password": self.password},
            "SCRAM-SHA-512": {"username": self.username, "password": self.password},
        }[self.mechanism if is_sasl else None]
        for name, value in needed.items():
            if value is None:
                yield f"is required with {self.mechanism}", "Add it next to `mechanism`", (name,)
        for name, value in {"keytab": self.keytab, "serviceName": self.service_name}.items():
            if value is not None and self.mechanism != "GSSAPI":
                yield f"means nothing with {self.mechanism or self.protocol}", "Use GSSAPI, or take it out", (name,)
        if self.token_provider is None:
            return
        if self.mechanism != "OAUTHBEARER":
            yield f"means nothing with {self.mechanism or self.protocol}", "Use OAUTHBEARER", ("tokenProvider",)
        others = {"tokenEndpointUrl": self.token_endpoint_url, "clientId": self.client_id}
        for name, value in {**others, "clientSecret": self.client_secret}.items():
            if value is not None:
                yield "does not go with tokenProvider", "Take it out; `account` has the identity", (name,)


def _list_tls_files(name: str, login: SecuritySpec | HttpLoginSpec | None) -> Iterator[tuple[str, str]]:
    if login is not None:
        files = {"caFile": login.ca_file, "certFile": login.cert_file, "keyFile": login.key_file}
        yield from ((f"{name}.{field}", path) for field, path in files.items() if path is not None)


_REGION: Final = ("security", "region")
_MSK_SERVER: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?:\d+\s*")


RequestRate = Annotated[
    float | None,
    Field(
        gt=0,
        description="How many requests a second each API gets at most: brokers, Admin API, REST API. Records do not "
        "count.",
        examples=[20],
    ),
]


class BrokersConnection(Connection):
    """Connection to brokers."""

    if TYPE_CHECKING:
        bootstrap_servers: Many[str]
        security: SecuritySpec | None
        namespace_separator: str
        requests_per_second: float | None

    @model_validator(mode="after")
    def _check_region(self) -> Self:
        if self.security is not None and self.security.mechanism == "AWS_MSK_IAM" and self.region() is None:
            message = "is required with AWS_MSK_IAM if no name in bootstrapServers contains it"
            raise build_refusal_error(
                FieldProblem(message, "Add `region: eu-west-1`, or yours, next to `mechanism`", _REGION)
            )
        return self

    def region(self) -> str | None:
        """Return the AWS region of the brokers, declared or parsed from their names."""
        if self.security is not None and self.security.region is not None:
            return self.security.region
        names = map(_MSK_SERVER.search, self.bootstrap_servers)
        return next((name[1] for name in names if name is not None), None)

    def find_security(self) -> SecuritySpec | None:
        """Return the login to the brokers; `None` without `security`."""
        return self.security

    def find_separator(self) -> str | None:
        """Return the declared replacement of `:`."""
        return self.namespace_separator

    def build_identity(self) -> tuple[str, ...]:
        """Return the declared brokers."""
        return tuple(sorted(self.bootstrap_servers))

    def list_files(self) -> Iterator[tuple[str, str]]:
        """Yield the certificates, key and keytab for the brokers."""
        yield from _list_tls_files("security", self.security)
        if self.security is not None and self.security.keytab is not None:
            yield "security.keytab", self.security.keytab

    def list_secret_targets(self) -> frozenset[str]:
        """Return the brokers with their protocol; empty without a login to them."""
        security = self.find_security()
        if security is None:
            return frozenset()
        return frozenset(f"{security.protocol}://{server.strip()}" for server in self.bootstrap_servers)

    def list_secrets(self) -> Iterator[tuple[str, str, frozenset[str]]]:
        """Yield the password and the OAuth client secret.

        AWS_MSK_IAM and a token provider count as secrets, because they send tokens.
        """
        security = self.security
        if security is None or security.mechanism is None:
            return
        if security.mechanism == "AWS_MSK_IAM":
            yield "security.mechanism", security.mechanism, self.list_secret_targets()
        if security.token_provider is not None:
            yield "security.tokenProvider", security.token_provider, self.list_secret_targets()
        if security.password is not None:
            yield "security.password", security.password, self.list_secret_targets()
        if security.client_secret is not None:
            yield (
                "security.clientSecret",
                security.client_secret,
                self.list_secret_targets() | {security.token_endpoint_url or ""},
            )


class KafkaConnection(BrokersConnection):
    """Connection to an Apache Kafka cluster."""

    bootstrap_servers: Annotated[Many[str], AfterValidator(_check_servers)] = Field(
        min_length=1, description="Some of its brokers, host:port.", examples=[["broker-1:9092"]]
    )
    security: SecuritySpec | None = Field(
        default=None, description="How to authenticate.", examples=[{"protocol": "PLAINTEXT"}]
    )
    namespace_separator: NamespaceSeparator = FLAT_SEPARATOR
    requests_per_second: RequestRate = None


def _check_admin_urls(urls: tuple[str, ...]) -> tuple[str, ...]:
    for position, url in enumerate(urls):
        if not _ADMIN_URL.fullmatch(url):
            hint = "Write http://host:9644, or https://"
            raise build_refusal_error(FieldProblem(f"{url!r} is not the address of an Admin API", hint, (position,)))
    return urls


_ADMIN_URL: Final = re.compile(r"https?://[^/@\s]+/?")


class HttpLoginSpec(Model):
    """Login to a cluster's HTTP API."""

    username: str | None = Field(default=None, description="Who logs in (Basic).", examples=["reconciler"])
    password: SecretReference | None = Field(default=None, description="Reference to the password.")
    token: SecretReference | None = Field(default=None, description="Reference to a bearer token, instead of a user.")
    ca_file: str | None = Field(default=None, description="Certificates to trust (PEM).", examples=["certs/ca.pem"])
    cert_file: str | None = Field(default=None, description="Our certificate (PEM).", examples=["certs/me.pem"])
    key_file: str | None = Field(default=None, description="Its private key (PEM).", examples=["certs/me.key"])

    @model_validator(mode="after")
    def _check_complete(self) -> HttpLoginSpec:
        if (self.username is None) != (self.password is None):
            missing = "password" if self.password is None else "username"
            raise build_refusal_error(FieldProblem("is required next to the other", "Add it", (missing,)))
        if self.token is not None and self.username is not None:
            raise build_refusal_error(FieldProblem("does not go with username", "Keep one of the two", ("token",)))
        return self

    @property
    def has_credentials(self) -> bool:
        """Whether a user, token or client certificate is declared, not only the certificates to trust."""
        return any(credential is not None for credential in (self.username, self.token, self.cert_file))


class RedpandaConnection(BrokersConnection):
    """Connection to a Redpanda cluster."""

    bootstrap_servers: Annotated[Many[str], AfterValidator(_check_servers)] = Field(
        min_length=1, description="Some of its brokers, host:port.", examples=[["broker-1:9092"]]
    )
    admin_urls: Annotated[Many[str], AfterValidator(_check_admin_urls)] = Field(
        min_length=1,
        description="Its Admin API, one address per broker.",
        examples=[["http://broker-1:9644", "http://broker-2:9644"]],
    )
    security: SecuritySpec | None = Field(
        default=None, description="How to authenticate.", examples=[{"protocol": "PLAINTEXT"}]
    )
    admin: HttpLoginSpec | None = Field(
        default=None,
        description="How to authenticate to the Admin API, as a superuser; absent: as the user of `security`, with its "
        "certificates.",
        examples=[{"username": "reconciler", "password": "${env:REDPANDA_PASSWORD}"}],
    )
    admin_timeout: DurationMs = Field(
        default=30_000, gt=0, description="How long a request to the Admin API is tried.", examples=["30s"]
    )
    namespace_separator: NamespaceSeparator = FLAT_SEPARATOR
    requests_per_second: RequestRate = None

    def list_files(self) -> Iterator[tuple[str, str]]:
        """Yield the certificates and keys for brokers and Admin API."""
        yield from super().list_files()
        yield from _list_tls_files("admin", self.admin)

    def list_secret_targets(self) -> frozenset[str]:
        """Return the brokers with their protocol, and the addresses of the Admin API."""
        return super().list_secret_targets() | frozenset(self.admin_urls)

    def list_secrets(self) -> Iterator[tuple[str, str, frozenset[str]]]:
        """Yield the secrets for brokers and Admin API."""
        yield from super().list_secrets()
        if self.admin is not None:
            for name, reference in (("admin.password", self.admin.password), ("admin.token", self.admin.token)):
                if reference is not None:
                    yield name, reference, frozenset(self.admin_urls)


def _check_rest_endpoint(endpoint: str) -> str:
    if "@" in endpoint:
        hint = "Write https://host:443, and log in by apiKey and apiSecret, or by `rest`"
        raise build_refusal_error(FieldProblem("holds a user or a password", hint))
    parts = _REST_ENDPOINT.fullmatch(endpoint)
    if parts is None or not 0 < int(parts["port"] or 1) <= _HIGHEST_PORT:
        hint = "Write https://host or https://host:443, with or without /kafka/v3 (/v3 for a REST proxy)"
        raise build_refusal_error(FieldProblem(f"{endpoint!r} is not the address of a Kafka REST API", hint))
    return endpoint


_REST_ENDPOINT: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?(?P<path>(?:/kafka)?/v3)?/?"
)
_HIGHEST_PORT: Final = 65_535
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


class ConfluentConnection(BrokersConnection):
    """Connection to a cluster of Confluent Cloud or Confluent Platform: its REST API, and its brokers for records."""

    rest_endpoint: Annotated[str, AfterValidator(_check_rest_endpoint)] = Field(
        description="Its REST endpoint, with or without `/kafka/v3` (`/v3` for a REST proxy).",
        examples=["https://pkc-abc12.eu-west-1.aws.confluent.cloud:443"],
    )
    cluster_id: str = Field(min_length=1, description="Its id.", examples=["lkc-abc123"])
    type: Annotated[Literal["cloud", "platform"], BeforeValidator(fold_case)] = Field(
        default="cloud", description="Confluent Cloud or Confluent Platform.", examples=["platform"]
    )
    kind: (
        Annotated[
            Literal["basic", "standard", "enterprise", "dedicated", "freight"],
            BeforeValidator(fold_case),
        ]
        | None
    ) = Field(
        default=None,
        description="Kind of a Cloud cluster, whose limits a plan then checks.",
        examples=["dedicated"],
    )
    api_key: SecretReference | None = Field(
        default=None,
        description="Reference to the API key; on Cloud, without `security`, it also logs in to the brokers.",
    )
    api_secret: SecretReference | None = Field(default=None, description="Reference to the API secret.")
    rest: HttpLoginSpec | None = Field(
        default=None,
        description="How to authenticate to the REST API without an API key; without credentials: by the token of "
        "`security`, if its mechanism is OAUTHBEARER.",
        examples=[{"username": "reconciler", "password": "${env:CONFLUENT_PASSWORD}"}],
    )
    rest_timeout: DurationMs = Field(
        default=30_000, gt=0, description="How long a request to the REST API is tried.", examples=["30s"]
    )
    bootstrap_servers: Annotated[Many[str], AfterValidator(_check_servers)] = Field(
        default=(),
        description="Some of its brokers, host:port, for records and group offsets.",
        examples=[["pkc-abc12.eu-west-1.aws.confluent.cloud:9092"]],
    )
    security: SecuritySpec | None = Field(
        default=None,
        description="How to authenticate to the brokers; absent on Cloud: SASL_SSL by the API key.",
        examples=[{"protocol": "PLAINTEXT"}],
    )
    namespace_separator: NamespaceSeparator = FLAT_SEPARATOR
    requests_per_second: RequestRate = None

    @field_validator("security")
    @classmethod
    def _check_mechanism(cls, security: SecuritySpec | None) -> SecuritySpec | None:
        if security is not None and security.mechanism == "AWS_MSK_IAM":
            hint = "Use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
            raise build_refusal_error(FieldProblem("is a login to Amazon MSK only", hint, ("mechanism",)))
        return security

    @model_validator(mode="after")
    def _check_login(self) -> Self:
        if problems := [FieldProblem(*problem) for problem in self._find_problems()]:
            raise build_refusal_error(*problems)
        return self

    def _find_problems(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        is_cloud, has_key = self.type == "cloud", self.api_key is not None or self.api_secret is not None
        if self.kind is not None and not is_cloud:
            yield "means nothing with type platform", "Take it out, or write `type: cloud`", ("kind",)
        if has_key and self.api_secret is None:
            yield "is required with apiKey", "Add it", ("apiSecret",)
        if has_key and self.api_key is None:
            yield "is required with apiSecret", "Add it", ("apiKey",)
        if has_key and self.rest is not None:
            yield "does not go with apiKey", "Keep one of the two", ("rest",)
        has_login = has_key or self.sends_oauth_token or (self.rest is not None and self.rest.has_credentials)
        if is_cloud and not has_login:
            hint = "Add apiKey and apiSecret, or credentials in `rest`, or `security` with OAUTHBEARER"
            yield "is required: Confluent Cloud refuses requests without a login", hint, ("apiKey",)
        elif is_cloud and self.bootstrap_servers and self.security is None and not has_key:
            hint = "Add `security`, or leave bootstrapServers out"
            yield "is required on Cloud with bootstrapServers, unless apiKey logs in", hint, ("security",)
        if self.security is not None and not self.bootstrap_servers and not self.sends_oauth_token:
            yield "means nothing without bootstrapServers", "Add bootstrapServers, or take it out", ("security",)

    @property
    def sends_oauth_token(self) -> bool:
        """Whether requests to the REST API carry the OAuth token of `security`."""
        has_other_login = self.api_key is not None or (self.rest is not None and self.rest.has_credentials)
        return self.security is not None and self.security.mechanism == "OAUTHBEARER" and not has_other_login

    @property
    def rest_origin(self) -> str:
        """Scheme, host and port of the REST endpoint, for example `https://host:443`."""
        parts = self._split_endpoint()
        return f"{parts['scheme']}://{parts['host'].lower()}:{parts['port'] or _DEFAULT_PORTS[parts['scheme']]}"

    @property
    def rest_path(self) -> str | None:
        """Declared base path of the REST API, `/kafka/v3` or `/v3`; `None` if the endpoint has none."""
        return self._split_endpoint()["path"]

    def _split_endpoint(self) -> re.Match[str]:
        return cast("re.Match[str]", _REST_ENDPOINT.fullmatch(self.rest_endpoint))

    def find_security(self) -> SecuritySpec | None:
        """Return the login to the brokers: `security`, or on Cloud the API key; `None` without brokers or login.

        The username of a login by API key is a reference, like its password.
        """
        if self.security is not None or self.type != "cloud" or self.api_key is None or not self.bootstrap_servers:
            return self.security
        return SecuritySpec(protocol="SASL_SSL", mechanism="PLAIN", username=self.api_key, password=self.api_secret)

    def build_identity(self) -> tuple[str, ...]:
        """Return the REST endpoint without its path, and the cluster id."""
        return self.rest_origin, self.cluster_id

    def list_files(self) -> Iterator[tuple[str, str]]:
        """Yield the certificates and keys for brokers and REST API."""
        yield from super().list_files()
        yield from _list_tls_files("rest", self.rest)

    def list_secret_targets(self) -> frozenset[str]:
        """Return the brokers with their protocol, and the REST endpoint."""
        return super().list_secret_targets() | {self.rest_origin}

    def list_secrets(self) -> Iterator[tuple[str, str, frozenset[str]]]:
        """Yield the API key, and the secrets for REST API and brokers."""
        endpoint = frozenset({self.rest_origin})
        brokers = super().list_secret_targets()
        key_targets = endpoint if self.security is not None else endpoint | brokers
        rest = HttpLoginSpec() if self.rest is None else self.rest
        for name, reference, targets in (
            ("apiKey", self.api_key, key_targets),
            ("apiSecret", self.api_secret, key_targets),
            ("rest.password", rest.password, endpoint),
            ("rest.token", rest.token, endpoint),
        ):
            if reference is not None:
                yield name, reference, targets
        for name, reference, targets in super().list_secrets():
            yield name, reference, targets if self.sends_oauth_token else targets - endpoint


Percent = Annotated[int, Field(strict=True, ge=0, le=100)]


class UploadSpec(Model):
    """When closed and open segments are uploaded."""

    max_interval: DurationMs | None = Field(
        default=None, description="Upload the open segment after this long; absent: closed ones only.", examples=["1h"]
    )

    @field_validator("max_interval")
    @classmethod
    def _check_seconds(cls, ms: int | None) -> int | None:
        if ms is not None and (ms <= 0 or ms % 1_000):
            hint = "Write 90s or 1h. Leave it out, and only closed segments are uploaded"
            raise build_refusal_error(FieldProblem("is not a whole number of seconds, at least one", hint))
        return ms


class MergeSpec(Model):
    """Merging of small adjacent remote segments."""

    enabled: Flag | None = Field(default=None, description="Merge at all; absent: yes.", examples=[True])
    target_bytes: SizeBytes | None = Field(default=None, description="Size of a merged object.", examples=["128MiB"])
    min_bytes: SizeBytes | None = Field(default=None, description="Runs below it wait or merge.", examples=["64MiB"])


class ManifestsSpec(Model):
    """Partition manifests in object storage."""

    spillover_bytes: SizeBytes | None = Field(
        default=None, description="Beyond it a manifest's oldest part is spilled.", examples=["64KiB"]
    )


class CacheSpec(Model):
    """Limits of the chunk cache for remote reads. The smallest applies."""

    directory: str | None = Field(
        default=None, description="Its location, a full path.", examples=["/var/cache/topics"]
    )
    bytes: SizeBytes | None = Field(default=None, description="Its largest size.", examples=["20GiB"])
    percent: Percent | None = Field(default=None, description="Its largest share of the disk.", examples=[20])
    max_objects: Count | None = Field(default=None, description="Its largest number of files.", examples=[100_000])
    chunk_bytes: SizeBytes | None = Field(default=None, description="Size of a chunk.", examples=["16MiB"])
    eviction: Annotated[Literal["eager", "capped", "predictive"], BeforeValidator(fold_case)] | None = Field(
        default=None, description="Which unshared chunks go when space is needed.", examples=["eager"]
    )
    trim_size_percent: Percent | None = Field(
        default=None, description="Trim at this share of its size; absent: when full.", examples=[70]
    )
    trim_objects_percent: Percent | None = Field(
        default=None, description="Trim at this share of its number of files; absent: when full.", examples=[70]
    )


class SpaceSpec(Model):
    """Limits of the platform's local disk use."""

    target_bytes: SizeBytes | None = Field(default=None, description="For local data, in bytes.", examples=["100GiB"])
    target_percent: Percent | None = Field(default=None, description="For local data, in percent.", examples=[50])
    reservation_percent: Percent | None = Field(
        default=None, description="Left free for everything else, in percent.", examples=[25]
    )


class MachineryTiering(Model):
    """Tiered storage settings of the cluster, which become cluster properties."""

    upload: UploadSpec | None = Field(
        default=None, description="When segments are uploaded.", examples=[{"maxInterval": "1h"}]
    )
    merge: MergeSpec | None = Field(
        default=None, description="Merging of small remote segments.", examples=[{"targetBytes": "128MiB"}]
    )
    manifests: ManifestsSpec | None = Field(
        default=None, description="Partition manifests.", examples=[{"spilloverBytes": "64KiB"}]
    )
    cache: CacheSpec | None = Field(
        default=None, description="The cache of remote reads.", examples=[{"bytes": "20GiB", "eviction": "eager"}]
    )
    space: SpaceSpec | None = Field(
        default=None, description="Use of the local disk.", examples=[{"targetPercent": 50}]
    )


TIERING_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "upload.maxInterval": "cloud_storage_segment_max_upload_interval_sec",
        "merge.enabled": "cloud_storage_enable_segment_merging",
        "merge.targetBytes": "cloud_storage_segment_size_target",
        "merge.minBytes": "cloud_storage_segment_size_min",
        "manifests.spilloverBytes": "cloud_storage_spillover_manifest_size",
        "cache.directory": "cloud_storage_cache_directory",
        "cache.bytes": "cloud_storage_cache_size",
        "cache.percent": "cloud_storage_cache_size_percent",
        "cache.maxObjects": "cloud_storage_cache_max_objects",
        "cache.chunkBytes": "cloud_storage_cache_chunk_size",
        "cache.eviction": "cloud_storage_chunk_eviction_strategy",
        "cache.trimSizePercent": "cloud_storage_cache_trim_threshold_percent_size",
        "cache.trimObjectsPercent": "cloud_storage_cache_trim_threshold_percent_objects",
        "space.targetBytes": "retention_local_target_capacity_bytes",
        "space.targetPercent": "retention_local_target_capacity_percent",
        "space.reservationPercent": "disk_reservation_percent",
    }
)
"""Cluster property, as named by Redpanda, by field of `spec.tiering`."""


FOLDER_PROVIDER: Final = "embedded"
BROKERS_PROVIDER: Final = "kafka"

Provider = Annotated[Literal["embedded", "kafka", "redpanda", "confluent"], BeforeValidator(fold_case)]


class ClusterSpec(Model):
    """Declared settings of a cluster."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [name]} for name in ("embedded", "kafka", "redpanda", "confluent")]}
    )

    provider: Provider = Field(default="embedded", description="Which platform it is.", examples=["embedded"])
    cluster_id: str | None = Field(
        default=None,
        description="Refuse to touch any other cluster.",
        examples=["67f5505a-32f3-4677-bcad-3c75a1a702a6"],
    )
    deletion_protection: Flag = Field(
        default=True, description="Deletes of data-bearing resources need `--allow`.", examples=[True]
    )
    properties: ClusterProperties = Field(
        default_factory=dict,
        description="Cluster-level properties, in the platform's names.",
        examples=[{"log.retention.hours": "72"}],
    )
    object_storage: Location | None = Field(
        default=None,
        description="The bucket that tiering, archives and mountings use; may be shared between clusters.",
        examples=["s3://topics"],
    )
    tiering: MachineryTiering | None = Field(
        default=None, description="Tiering settings of the cluster.", examples=[{"upload": {"maxInterval": "1h"}}]
    )
    embedded: EmbeddedConnection | None = Field(
        default=None, description="With provider embedded.", examples=[{"root": "file://.clusters/west"}]
    )
    kafka: KafkaConnection | None = Field(
        default=None, description="With provider kafka.", examples=[{"bootstrapServers": ["broker-1:9092"]}]
    )
    redpanda: RedpandaConnection | None = Field(
        default=None,
        description="With provider redpanda.",
        examples=[{"bootstrapServers": ["broker-1:9092"], "adminUrls": ["http://broker-1:9644"]}],
    )
    confluent: ConfluentConnection | None = Field(
        default=None,
        description="With provider confluent.",
        examples=[
            {
                "restEndpoint": "https://pkc-abc12.eu-west-1.aws.confluent.cloud:443",
                "clusterId": "lkc-abc123",
                "apiKey": "${env:CONFLUENT_KEY}",
                "apiSecret": "${env:CONFLUENT_SECRET}",
            }
        ],
    )

    @property
    def connection(self) -> Connection:
        """The connection block of the cluster's provider."""
        return cast("Connection", getattr(self, self.provider))

    @property
    def root(self) -> LocationSpec | None:
        """The cluster's folder or bucket; `None` for brokers."""
        return self.connection.find_location()

    @model_validator(mode="after")
    def _check_connection(self) -> ClusterSpec:
        blocks = {
            "embedded": self.embedded,
            "kafka": self.kafka,
            "redpanda": self.redpanda,
            "confluent": self.confluent,
        }
        wrong = [
            FieldProblem(
                f"does not go with provider {self.provider}", hint="Leave it out, or name its provider", at=(name,)
            )
            for name, block in blocks.items()
            if block is not None and name != self.provider
        ]
        if blocks[self.provider] is None:
            example = ClusterSpec.model_fields[self.provider].examples or [{}]
            hint = f"Add it, for example `{self.provider}: {_format_one_line(example[0])}`"
            wrong.append(FieldProblem(f"is required with provider {self.provider}", hint=hint, at=(self.provider,)))
        if wrong:
            raise build_refusal_error(*wrong)
        return self


class Cluster(Model):
    """An embedded, Kafka, Redpanda or Confluent cluster."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["Cluster"] = Field(default="Cluster", description="What this document declares.")
    metadata: NameOnly = Field(description="Its name.")
    spec: ClusterSpec = Field(description="Which platform it is, and how it is reached.")

    @property
    def address(self) -> Address:
        """Address such as `cluster/west`."""
        return cluster_address(self.metadata.name)

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self.metadata.name


def _format_one_line(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {_format_one_line(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(_format_one_line(item) for item in value) + "]"
        case _:
            return str(value)
