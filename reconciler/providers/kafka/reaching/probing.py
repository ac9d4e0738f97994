"""A look at a port when a connection to it died without a word: does it speak TLS, or Kafka's protocol in clear?"""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

_SECONDS: Final = 3.0
_API_VERSIONS: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""Length, ApiVersions, version 0, correlation 1, no client id: any listener answers it before anybody logs in."""
_ANSWER_MAX: Final = 1 << 20
_TLS_MISSING: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING"})


def refusal(address: tuple[str, int], context: ssl.SSLContext | None) -> OSError | None:
    """Return what ends a connection to a port, greeted by TLS if there is a context; `None` where it is made."""
    try:
        with socket.create_connection(address, _SECONDS) as plain:
            if context is not None:
                context.wrap_socket(plain, server_hostname=address[0]).close()
    except OSError as error:
        return error
    return None


def speaks_tls(address: tuple[str, int]) -> bool:
    """Return True if a port answers a greeting by TLS; whom it trusts and who it is does not matter here."""
    import ssl  # noqa: PLC0415 - only who failed pays

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection(address, _SECONDS) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return error.reason not in _TLS_MISSING and not isinstance(error, ssl.SSLEOFError)
    except OSError:
        return False


def speaks_plain(address: tuple[str, int]) -> bool:
    """Return True if a port answers a request in clear."""
    try:
        with closing(socket.create_connection(address, _SECONDS)) as plain:
            plain.sendall(_API_VERSIONS)
            length = plain.recv(4, socket.MSG_WAITALL)
            return len(length) == len(b"size") and 0 < int.from_bytes(length, "big") < _ANSWER_MAX
    except OSError:
        return False
