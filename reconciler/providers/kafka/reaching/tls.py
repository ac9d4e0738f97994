"""Certificates and keys as texts: read once at the edge, they travel to executors that have no such files."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.providers.secrets import Secret

if TYPE_CHECKING:
    import ssl

    from reconciler.providers.base import Edge
    from reconciler.resources.connections import SecuritySpec

_MAX_BYTES: Final = 4 * 1024 * 1024
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom to trust and who we are, in PEM; `None`: those the system trusts, and nobody."""

    ca: str | None = None
    certificate: str | None = None
    key: Secret | None = None
    """Lies with the certificate where that is `None`."""

    @classmethod
    def of(cls, declared: SecuritySpec, edge: Edge, *, where: str) -> Tls:
        """Return what the files of a declaration say; relative paths start at the folder of the workspace.

        Raises:
            UserError: One cannot be read, or holds something else.
        """
        if declared.key_file is not None and declared.cert_file is None:
            message = f"{where}.keyFile: a key without a certificate"
            raise UserError(message, hint="Name the certificate in certFile, or leave keyFile out.")
        found = cls(
            _certificates(declared.ca_file, edge, f"{where}.caFile"),
            _certificates(declared.cert_file, edge, f"{where}.certFile"),
            _key(declared.key_file or declared.cert_file, edge, f"{where}.keyFile"),
        )
        if found.certificate is not None:
            found.context(where=where)
        return found

    def context(self, *, where: str) -> ssl.SSLContext:
        """Return what Python's connections take.

        Raises:
            UserError: The certificates cannot be used, or the key is that of another certificate.
        """
        import ssl  # noqa: PLC0415 - only who encrypts pays

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if self.ca is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(cadata=self.ca)
            self._identify(context)
        except (ssl.SSLError, ValueError) as error:
            message = f"{where}: the certificates cannot be used: {getattr(error, 'reason', None) or error}"
            hint = "See that caFile, certFile and keyFile hold PEM, and that the key is the certificate's own."
            raise UserError(message, hint=hint) from error
        return context

    def _identify(self, context: ssl.SSLContext) -> None:
        if self.certificate is None or self.key is None:
            return
        with tempfile.TemporaryDirectory(prefix="reconciler-") as folder:  # Only its owner may look into it.
            certificate, key = Path(folder, "certificate"), Path(folder, "key")
            certificate.write_text(self.certificate)
            key.write_text(self.key.reveal())
            context.load_cert_chain(certificate, key, password=_nobody_to_ask)

    def of_records(self) -> dict[str, Any]:
        """Return what librdkafka takes; a key stays secret."""
        found = {"ssl.ca.pem": self.ca, "ssl.certificate.pem": self.certificate, "ssl.key.pem": self.key}
        return {name: text for name, text in found.items() if text is not None}


def _nobody_to_ask() -> str:
    message = "the key is encrypted"
    raise ValueError(message)


def _certificates(name: str | None, edge: Edge, where: str) -> str | None:
    if name is None:
        return None
    text = _read(name, edge, where)
    if _CERTIFICATE not in text:
        message = f"{where}: {name} holds no certificate in PEM"
        raise UserError(message, hint=f"It must have a line {_CERTIFICATE}; convert other forms with openssl.")
    return text


def _key(name: str | None, edge: Edge, where: str) -> Secret | None:
    if name is None:
        return None
    text = _read(name, edge, where)
    if "PRIVATE KEY-----" not in text:
        message = f"{where}: {name} holds no private key in PEM"
        raise UserError(message, hint="Name the file of the key, or put the key into that of the certificate.")
    if "ENCRYPTED" in text:
        message = f"{where}: the key in {name} is encrypted, and nobody can be asked for its password"
        raise UserError(message, hint="Decrypt it with `openssl pkey`, and protect the file by its permissions.")
    return Secret(text)


def _read(name: str, edge: Edge, where: str) -> str:
    path = edge.folder / name
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text"
        raise UserError(f"{where}: {path} cannot be read: {why}", hint="Check the path and its permissions.") from error
