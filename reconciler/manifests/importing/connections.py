"""How a cluster is reached, from the words of other tools. A secret is never copied, only referred to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.manifests.importing.fields import Fields

PASSWORD: Final = "${env:KAFKA_PASSWORD}"  # noqa: S105 - the reference, not a password
CLIENT_SECRET: Final = "${env:KAFKA_CLIENT_SECRET}"  # noqa: S105 - as above

_SECRETS: Final = frozenset({"password", "clientSecret"})
_ODD: Final = re.compile(r"[^A-Za-z0-9]+")
_MECHANISMS: Final[Mapping[str, str]] = {
    "plain": "PLAIN",
    "scramsha256": "SCRAM-SHA-256",
    "scramsha512": "SCRAM-SHA-512",
    "oauthbearer": "OAUTHBEARER",
}


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of certificates, as far as they are files."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class Sasl:
    """How to log in."""

    mechanism: str | None
    username: str | None = None
    token_url: str | None = None
    client_id: str | None = None
    scope: str | None = None


def secrets_of(security: Mapping[str, str], cluster: str) -> dict[str, str]:
    """Return the same with references of a cluster's own, where there are several: each has its password."""
    if not cluster:
        return dict(security)
    own = f"KAFKA_{_ODD.sub('_', cluster).upper()}_"
    return {key: value.replace("KAFKA_", own, 1) if key in _SECRETS else value for key, value in security.items()}


def security_of(at: Fields, tls: Tls | None, sasl: Sasl | None) -> dict[str, str]:
    """Return the `security` of a Cluster; what it lacks is said at `at`, and what cannot be said is left out."""
    login = _login(at, sasl) if sasl is not None else {}
    protocol = ("SASL_" if login else "") + ("SSL" if tls is not None else "PLAINTEXT")
    files = {} if tls is None else {"caFile": tls.ca_file, "certFile": tls.cert_file, "keyFile": tls.key_file}
    found = {"protocol": protocol, **login, **{key: path for key, path in files.items() if path}}
    return {} if found == {"protocol": "PLAINTEXT"} else found


def _login(at: Fields, sasl: Sasl) -> dict[str, str]:
    mechanism = _MECHANISMS.get((sasl.mechanism or "plain").lower().replace("-", "").replace("_", ""))
    if mechanism is None:
        hint = f"Write spec.kafka.security of the Cluster by hand: one of {', '.join(sorted(_MECHANISMS.values()))}."
        at.lost("", f"logging in by {sasl.mechanism} is not done here", hint)
        return {}
    if mechanism == "OAUTHBEARER":
        needed = {"tokenEndpointUrl": sasl.token_url, "clientId": sasl.client_id}
        rest = {"clientSecret": CLIENT_SECRET, **({"scope": sasl.scope} if sasl.scope else {})}
    else:
        needed, rest = {"username": sasl.username}, {"password": PASSWORD}
    missing = [key for key, value in needed.items() if not value]
    if missing:
        hint = "Write spec.kafka.security of the Cluster by hand."
        at.lost("", f"logging in by {mechanism} needs {' and '.join(missing)}, which is not written here", hint)
        return {}
    return {"mechanism": mechanism, **{key: value for key, value in needed.items() if value}, **rest}
