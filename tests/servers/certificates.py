"""Certificates for test servers: an authority of their own, and what it issues, good or bad."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY: Final = dt.timedelta(days=1)
_SIGNS: Final = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@dataclass
class Authority:
    """Issues certificates into a folder."""

    folder: Path
    name: str = "tests"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.ca = self._written(f"{self.name}-ca.pem", self._signed(_named(self.name), self.key, None, _DAY))

    def issued(self, name: str, *, host: str = "127.0.0.1", lasts: dt.timedelta = _DAY) -> tuple[Path, Path]:
        """Return the files of a certificate and of its key; one that lasts less than nothing has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(_named(name), key, host, lasts)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._written(f"{name}.pem", certificate), self._written(f"{name}.key", pem)

    def keystore(self, name: str, *, host: str = "127.0.0.1", lasts: dt.timedelta = _DAY) -> Path:
        """Return one file with a key and its certificate, as brokers want it."""
        certificate, key = self.issued(name, host=host, lasts=lasts)
        return self._written(f"{name}.both", key.read_bytes() + certificate.read_bytes())

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, host: str | None, lasts: dt.timedelta
    ) -> bytes:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(_named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * _DAY)
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
            # Since Python 3.13 the default context requires the names of keys.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if host is None:
            builder = builder.add_extension(_SIGNS, critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _written(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
