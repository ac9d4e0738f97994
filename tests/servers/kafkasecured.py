"""A broker with a listener of every kind, good and bad, and how each is declared."""

from __future__ import annotations

import datetime as dt
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.kafkajars import KafkaMissingError, classpath, compiler_jar, java
from reconciler.providers.protocol import Edge
from reconciler.resources.cluster import Cluster
from tests.servers.accounts import SERVICE_ACCOUNT
from tests.servers.certificates import Authority
from tests.servers.kafka import Kafka
from tests.servers.tokenendpoint import CLIENT, SECRET, TokenEndpoint

USER: Final = "admin"
ENVIRON: Final = {"PASSWORD": "right-one", "WRONG": "wrong-one", "CLIENT_SECRET": SECRET}
REGION: Final = "eu-west-1"
_KEYS: Final = "aws-keys"
_LISTENERS: Final = {
    "LOGIN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "MSK": "SASL_SSL",
    "GOOGLE": "SASL_SSL",
}
_LOGIN: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secured:
    """The broker, the authority that all of its certificates are from, and where its tokens come from."""

    kafka: Kafka
    authority: Authority
    tokens: TokenEndpoint

    def declared(self, listener: str, **security: Any) -> Cluster:
        """Return the broker as a manifest declares it."""
        return declared(self.kafka.bootstrap(listener), **security)

    def trust(self, access_key: str, secret: str) -> None:
        """Let the listener MSK know the secret of an access key."""
        with (self.authority.folder / _KEYS).open("a") as file:
            file.write(f"{access_key}={secret}\n")

    def edge(self) -> Edge:
        return edge(self.authority.folder)


def declared(servers: str, **security: Any) -> Cluster:
    """Return a cluster at some address as a manifest declares it."""
    reached: dict[str, Any] = {"bootstrapServers": servers.split(","), **({"security": security} if security else {})}
    return Cluster.model_validate({"metadata": {"name": "west"}, "spec": {"provider": "kafka", "kafka": reached}})


def edge(folder: Path) -> Edge:
    return Edge(folder, ENVIRON, lambda: "", lambda: 0)


@contextmanager
def secured(**options: Any) -> Iterator[Secured]:
    """Start one."""
    with tempfile.TemporaryDirectory(prefix="certificates-") as folder, TokenEndpoint() as tokens:
        authority = Authority(Path(folder))
        extra = {**_of_logins(), **_of_msk(Path(folder)), **_of_google(), **_of_certificates(authority)}
        scram = {USER: ENVIRON["PASSWORD"]}
        with Kafka.start(listeners=_LISTENERS, extra=extra, scram=scram, before=_compile, **options) as kafka:
            yield Secured(kafka, authority, tokens)


def _of_logins() -> dict[str, str]:
    plain = f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{ENVIRON["PASSWORD"]}";'
    scram = f"{_LOGIN}.scram.ScramLoginModule required;"
    bearer = f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{USER}";'
    modules = {"plain": plain, "scram-sha-256": scram, "scram-sha-512": scram, "oauthbearer": bearer}
    found = {
        f"listener.name.{listener}.{mechanism}.sasl.jaas.config": module
        for listener in ("login", "both")
        for mechanism, module in modules.items()
    }
    return {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER", **found}


def _of_msk(folder: Path) -> dict[str, str]:
    """Return the properties of a listener that checks tokens as Amazon MSK does, and ends sessions with them."""
    (folder / _KEYS).touch()
    options = f'principal="{USER}" region="{REGION}" keys="{folder / _KEYS}" unsecuredLoginStringClaim_sub="{USER}"'
    found = {
        "sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required {options};",
        "sasl.server.callback.handler.class": "MskTokens",
        "connections.max.reauth.ms": "3600000",
    }
    return _of_tokens("msk", found)


def _of_google() -> dict[str, str]:
    """Return the properties of a listener that checks tokens as Google's Managed Kafka does."""
    options = f'principal="{USER}" subject="{SERVICE_ACCOUNT}" unsecuredLoginStringClaim_sub="{USER}"'
    found = {
        "sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required {options};",
        "sasl.server.callback.handler.class": "GoogleTokens",
        "connections.max.reauth.ms": "3600000",
    }
    return _of_tokens("google", found)


def _of_tokens(listener: str, found: dict[str, str]) -> dict[str, str]:
    return {f"listener.name.{listener}.oauthbearer.{name}": value for name, value in found.items()} | {
        f"listener.name.{listener}.sasl.enabled.mechanisms": "OAUTHBEARER"
    }


def _compile(kafka: Kafka) -> None:
    for broker in kafka.brokers:
        library = Path(classpath(kafka.version)).with_name(f"kafka-clients-{kafka.version}.jar")
        sources = [str(Path(__file__).with_name(f"{name}.java")) for name in ("MskTokens", "GoogleTokens")]
        command = [java(), "-jar", compiler_jar(), "-17", "-cp", str(library), "-d", str(broker.classes), *sources]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise KafkaMissingError(f"{sources} cannot be compiled: {ended.stdout}{ended.stderr}")


def _of_certificates(authority: Authority) -> dict[str, str]:
    expired = authority.keystore("expired", lasts=-dt.timedelta(hours=1))
    stores = {
        **dict.fromkeys(("both", "tls", "mutual", "msk", "google"), authority.keystore("broker")),
        "expired": expired,
        "elsewhere": authority.keystore("elsewhere", host="elsewhere.example.com"),
    }
    found: dict[str, str] = {"listener.name.mutual.ssl.client.auth": "required"}
    for listener, store in stores.items():
        found |= {
            f"listener.name.{listener}.ssl.keystore.type": "PEM",
            f"listener.name.{listener}.ssl.keystore.location": str(store),
            f"listener.name.{listener}.ssl.truststore.type": "PEM",
            f"listener.name.{listener}.ssl.truststore.location": str(authority.ca),
        }
    return found


__all__ = ["CLIENT", "ENVIRON", "REGION", "USER", "Secured", "declared", "edge", "secured"]
