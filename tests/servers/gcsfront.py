"""What Google's storage does and fake-gcs-server does not, done before it: writes of the XML interface.

Clients that speak XML (`obstore` does) write with `PUT /bucket/object`, their condition in
`x-goog-if-generation-match`; fake-gcs-server takes writes and conditions of the JSON interface alone. Each write is
sent on as the JSON request that means the same, so what decides about a condition is that server. Parts of a large
object are kept here until it is complete. All else passes as it is.
"""

from __future__ import annotations

import http.client
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

_SECONDS: Final = 60
_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "date"})


class Front:
    """Listens on a port of its own until it is stopped."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.parts: dict[str, dict[int, bytes]] = {}
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.upstream.hostname or "", self.upstream.port, timeout=_SECONDS)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, front: Front) -> None:
        self.front = front
        super().__init__(("127.0.0.1", 0), _Request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients break off here on purpose."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits for the head before it to be acknowledged
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        del format, args

    def do_GET(self) -> None:
        self._pass()

    def do_HEAD(self) -> None:
        self._pass()

    def do_DELETE(self) -> None:
        upload = parse_qs(self.path.partition("?")[2]).get("uploadId")
        if upload is None:
            self._pass()
        elif self.server.front.parts.pop(upload[0], None) is None:
            self._refuse(404, *_NO_UPLOAD)
        else:
            self._answer(204, {}, b"")

    def do_PUT(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # its sender died
            self.close_connection = True
            return
        path, _, query = self.path.partition("?")
        asked = parse_qs(query, keep_blank_values=True)
        bucket, _, name = path.removeprefix("/").partition("/")
        if "partNumber" in asked:
            self.server.front.parts[asked["uploadId"][0]][int(asked["partNumber"][0])] = body
            self._answer(200, {"ETag": f'"{secrets.token_hex(8)}"'}, b"")
        elif (source := self.headers.get("x-goog-copy-source")) is not None:
            self._copy(bucket, name, source)
        else:
            self._insert(bucket, name, body)

    def do_POST(self) -> None:
        path, _, query = self.path.partition("?")
        asked = parse_qs(query, keep_blank_values=True)
        bucket, _, name = path.removeprefix("/").partition("/")
        if "uploads" in asked:
            upload = secrets.token_hex(8)
            self.server.front.parts[upload] = {}
            named = f"<Bucket>{bucket}</Bucket><Key>x</Key><UploadId>{upload}</UploadId>"
            self._answer(200, {}, f"<InitiateMultipartUploadResult>{named}</InitiateMultipartUploadResult>".encode())
        elif "uploadId" in asked:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = self.server.front.parts.pop(asked["uploadId"][0], None)
            if parts is None:
                self._refuse(404, *_NO_UPLOAD)
                return
            self._insert(bucket, name, b"".join(body for _, body in sorted(parts.items())), is_multipart=True)
        else:
            self._pass()

    def _insert(self, bucket: str, name: str, body: bytes, *, is_multipart: bool = False) -> None:
        """Send a write on with its condition, in the only kind of upload of which that server heeds conditions."""
        edge = secrets.token_hex(8)
        about = json.dumps({"name": unquote(name), "contentType": "application/octet-stream"})
        sent = (
            (
                f"--{edge}\r\nContent-Type: application/json\r\n\r\n{about}\r\n"
                f"--{edge}\r\nContent-Type: application/octet-stream\r\n\r\n"
            ).encode()
            + body
            + f"\r\n--{edge}--\r\n".encode()
        )
        condition = self.headers.get("x-goog-if-generation-match")
        wanted = "" if condition is None else f"&ifGenerationMatch={condition}"
        status, _, said = self.server.front.ask(
            "POST",
            f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart{wanted}",
            sent,
            {"Content-Type": f"multipart/related; boundary={edge}"},
        )
        if status != 200:
            self._refuse(status, *_WORDS.get(status, ("InternalError", said.decode(errors="replace")[:200])))
            return
        made: dict[str, Any] = json.loads(said)
        headers = {"x-goog-generation": str(made["generation"]), "ETag": f'"{made["md5Hash"]}"'}
        named = f"<Bucket>{bucket}</Bucket><Key>x</Key><ETag>&quot;{made['md5Hash']}&quot;</ETag>"
        done = f"<CompleteMultipartUploadResult>{named}</CompleteMultipartUploadResult>".encode()
        self._answer(200, headers, done if is_multipart else b"")

    def _copy(self, bucket: str, name: str, source: str) -> None:
        other, _, source_name = source.removeprefix("/").partition("/")
        from_name, to_name = (quote(unquote(one), safe="") for one in (source_name, name))
        path = f"/storage/v1/b/{other}/o/{from_name}/rewriteTo/b/{bucket}/o/{to_name}"
        status, _, _ = self.server.front.ask("POST", path, b"{}", {"Content-Type": "application/json"})
        if status != 200:
            self._refuse(status, *_WORDS.get(status, ("InternalError", "it cannot be copied")))
            return
        self._answer(200, {}, b"<CopyObjectResult></CopyObjectResult>")

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        sent = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        status, headers, said = self.server.front.ask(self.command, self.path, body, sent)
        # Of a missing bucket that server says 500 to a listing, and nothing to a deletion: Google names it.
        if status in {404, 500}:
            bucket = self.path.removeprefix("/").partition("/")[0].partition("?")[0]
            is_there = self.server.front.ask("GET", f"/storage/v1/b/{bucket}", b"", {})[0] == 200
            if status == 404 or not is_there:
                self._refuse(404, *(_WORDS[404] if is_there else _NO_BUCKET))
                return
        self._answer(status, headers, said)

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self._answer(status, {"Content-Type": "application/xml"}, body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


_WORDS: Final = {
    404: ("NoSuchKey", "The specified key does not exist."),
    412: ("PreconditionFailed", "At least one of the pre-conditions you specified did not hold."),
}
_NO_UPLOAD: Final = ("NoSuchUpload", "The requested upload was not found.")
_NO_BUCKET: Final = ("NoSuchBucket", "The specified bucket does not exist.")
