"""How each kind of cluster is reached. Secrets are references, resolved only at the edge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from reconciler.resources.base import Complaint, Flag, Many, Model, refusal
from reconciler.resources.locations import Location
from reconciler.resources.secret import SecretReference


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _check_separator(separator: str) -> str:
    if separator not in {".", "_", "-"}:
        message = "not one of '.', '_' and '-'"
        raise ValueError(message)
    return separator


def _check_servers(servers: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse the one text with commas that Kafka's own tools take: it would be looked up as the name of one host."""
    for position, each in enumerate(servers):
        if "," in each:
            words = ", ".join(part.strip() for part in each.split(","))
            raise refusal(Complaint("names several brokers in one text", f"Write a list: [{words}]", (position,)))
    return servers


class EmbeddedConnection(Model):
    """Where an embedded cluster lives."""

    root: Location = Field(description="The folder or bucket that is the cluster.", examples=["file://.clusters/west"])


class SecuritySpec(Model):
    """How to authenticate to a Kafka listener."""

    protocol: Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(_upper)] = Field(
        default="PLAINTEXT", description="Encryption and authentication of the listener.", examples=["SASL_SSL"]
    )
    mechanism: (
        Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], BeforeValidator(_upper)] | None
    ) = Field(default=None, description="How a SASL listener authenticates.", examples=["SCRAM-SHA-512"])
    username: str | None = Field(default=None, description="Who logs in.", examples=["reconciler"])
    password: SecretReference | None = Field(default=None, description="Reference to the password.")
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
    client_id: str | None = Field(default=None, description="OAuth client.", examples=["reconciler"])
    client_secret: SecretReference | None = Field(default=None, description="Reference to its secret.")
    scope: str | None = Field(default=None, description="OAuth scope.", examples=["kafka"])

    @model_validator(mode="after")
    def _complete(self) -> SecuritySpec:
        if missing := [Complaint(*what) for what in self._missing()]:
            raise refusal(*missing)
        return self

    def _missing(self) -> Iterator[tuple[str, str, tuple[str]]]:
        is_sasl = self.protocol.startswith("SASL_")
        if is_sasl and self.mechanism is None:
            yield f"is required with {self.protocol}", "For example `mechanism: SCRAM-SHA-512`", ("mechanism",)
        if self.mechanism is not None and not is_sasl:
            yield f"means nothing with {self.protocol}", "Use SASL_SSL, or leave it out", ("mechanism",)
        needed = {
            None: {},
            "OAUTHBEARER": {"tokenEndpointUrl": self.token_endpoint_url, "clientId": self.client_id},
            "PLAIN": {"username": self.username, "password": self.password},
            "SCRAM-SHA-256": {"username": self.username, "password": self.password},
            "SCRAM-SHA-512": {"username": self.username, "password": self.password},
        }[self.mechanism if is_sasl else None]
        for name, value in needed.items():
            if value is None:
                yield f"is required with {self.mechanism}", "Add it beside `mechanism`", (name,)


class KafkaConnection(Model):
    """How an Apache Kafka cluster is reached."""

    bootstrap_servers: Annotated[Many[str], AfterValidator(_check_servers)] = Field(
        min_length=1, description="Some of its brokers, host:port.", examples=[["broker-1:9092"]]
    )
    security: SecuritySpec | None = Field(
        default=None, description="How to authenticate.", examples=[{"protocol": "PLAINTEXT"}]
    )
    namespace_separator: Annotated[str, AfterValidator(_check_separator)] = Field(
        default=".",
        description="What ':' becomes in topic names.",
        examples=["."],
        json_schema_extra={"enum": [".", "_", "-"]},
    )


class RedpandaConnection(Model):
    """How a Redpanda cluster is reached."""

    bootstrap_servers: Many[str] = Field(
        min_length=1, description="Some of its brokers, host:port.", examples=[["broker-1:9092"]]
    )
    admin_urls: Many[str] = Field(min_length=1, description="Its Admin API.", examples=[["http://broker-1:9644"]])
    security: SecuritySpec | None = Field(
        default=None, description="How to authenticate.", examples=[{"protocol": "PLAINTEXT"}]
    )


class ConfluentConnection(Model):
    """How a Confluent cluster is reached."""

    rest_endpoint: str = Field(
        description="Its REST endpoint.", examples=["https://pkc-abc12.eu-west-1.aws.confluent.cloud:443"]
    )
    cluster_id: str = Field(description="Its id.", examples=["lkc-abc123"])
    api_key: SecretReference = Field(description="Reference to the API key.")
    api_secret: SecretReference = Field(description="Reference to the API secret.")
    bootstrap_servers: Many[str] = Field(
        default=(),
        description="Some of its brokers, host:port, for records.",
        examples=[["pkc-abc12.eu-west-1.aws.confluent.cloud:9092"]],
    )
