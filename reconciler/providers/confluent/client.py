"""Confluent's REST API v3: one method per call, and the meaning of its errors (confluent.md, 6 and 7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import quote, urlencode

from reconciler.errors import (
    BlockedError,
    NotAuthorizedError,
    NotFoundError,
    ReconcilerError,
    RetryableError,
    UnansweredError,
    UserError,
)
from reconciler.providers.brokers.security import Tls, build_token_source
from reconciler.providers.http import HttpAnswer, HttpApi, HttpLogin, build_basic_header, build_bearer_header
from reconciler.providers.secrets import resolve_secret
from reconciler.resources.mirrors import RESTORE, REVERSALS
from reconciler.runtime.retry import Backoff, RateLimit, Tries

if TYPE_CHECKING:
    import ssl

    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import Cluster, ConfluentConnection

Json: TypeAlias = dict[str, Any]

POLLS: Final = Backoff(0.2, 2.0, spread=0.2)
"""Pauses between reads of what the cluster has begun."""
_SETTLING: Final = Backoff(0.5, 4.0, spread=0.1)
_SETTLING_S: Final = 30.0
_TRANSIENT: Final = ("Unable to resolve cluster link information", "does not have a link named")
"""Messages after a link's creation that pass by themselves (confluent.md, F-C-205)."""
_PATH_WORDS: Final = {word: f"{word}-mirror" for word in REVERSALS}
"""Verbs that have other words in a path."""
_ANSWER_MAX: Final = 512 << 20
"""Limit of the configs of all topics: about 10 KB for each."""
_NO_LINKS: Final = "Cluster linking is disabled"
"""Part of the message of clusters that cannot be the destination of links (confluent.md, 7)."""
_NO_CLUSTER: Final = "lkc-000000"
"""Id of no cluster, for a trial."""
_LOGIN_HINT: Final = "Check {} of the Cluster, and that it is a login of this cluster, not of Confluent Cloud itself."


class RestClient:
    """The REST API of one cluster. Thread-safe."""

    def __init__(self, declared: Cluster, edge: Edge) -> None:
        """Open no connection; the first request resolves the secrets."""
        connection = cast("ConfluentConnection", declared.spec.connection)
        self.name, self.cluster_id = declared.metadata.name, connection.cluster_id
        self._is_known = False
        path = connection.rest_path or "/kafka/v3"
        self._base = f"{path}/clusters/{quote(self.cluster_id, safe='')}"
        self._api = HttpApi(
            f"cluster {self.name}: REST API",
            [connection.rest_origin],
            "restEndpoint",
            connection.rest_timeout / 1000,
            _make_login(declared, connection, edge),
            frozenset({HTTPStatus.UNAUTHORIZED}),
            _ANSWER_MAX,
            RateLimit.create(connection.requests_per_second),
        )

    def read(self, *path: str, **query: object) -> Json:
        """Return an object; raise `NotFoundError` if it does not exist."""
        return _object(check(self._read(path, query), f"read {'/'.join(path)}"))

    def ask(self, *path: str) -> HttpAnswer:
        """Return the response to a GET, whatever its status."""
        return self._read(path, {})

    def list_rows(self, *path: str, **query: object) -> list[Json]:
        """Return the items of a list."""
        rows = self.read(*path, **query).get("data")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def request(
        self, method: str, *path: str, content: object = None, is_repeatable: bool = False, **query: object
    ) -> HttpAnswer:
        """Send one change, and return the response whatever its status.

        Raises:
            UnansweredError: It may have been done, unless `is_repeatable`.
        """
        return self._api.change(method, self._build_path(path, query), content, is_repeatable=is_repeatable)

    def change(
        self,
        method: str,
        *path: str,
        doing: str,
        content: object = None,
        is_repeatable: bool = False,
        **query: object,
    ) -> Json:
        """Send one change; return the response's object, which may be empty. `doing` completes "cannot …".

        The two transient refusals after a link's creation are repeated for 30 seconds: nothing was done then.
        """
        tries = Tries(_SETTLING, within_s=_SETTLING_S)
        while True:
            answer = self.request(method, *path, content=content, is_repeatable=is_repeatable, **query)
            if answer.is_success or not any(text in answer.message for text in _TRANSIENT) or tries.has_ended:
                return _object(check(answer, doing))
            tries.wait()

    def may_have_links(self) -> bool | None:
        """Return whether links can copy into the cluster, by a trial; `None` if this login may not try it."""
        content = {"source_cluster_id": _NO_CLUSTER, "configs": [{"name": "connection.mode", "value": "INBOUND"}]}
        query = {"link_name": "reconciler-trial", "validate_only": True, "validate_link": False}
        answer = self.request("POST", "links", content=content, is_repeatable=True, **query)
        return False if _NO_LINKS in answer.message else True if answer.is_success else None

    def alter_link(self, name: str, changes: Sequence[Mapping[str, Any]]) -> None:
        """Change configs of a link, one at a time where the API has no batch."""
        answer = self.request(
            "PUT", "links", name, "configs:alter", content={"data": list(changes)}, is_repeatable=True
        )
        if answer.status != HTTPStatus.METHOD_NOT_ALLOWED:
            check(answer, f"change link {name}")
            return
        for row in changes:
            place, doing = ("links", name, "configs", row["name"]), f"change {row['name']} of link {name}"
            if row.get("operation") == "DELETE":
                self.change("DELETE", *place, doing=doing, is_repeatable=True)
            else:
                self.change("PUT", *place, doing=doing, content={"value": row["value"]}, is_repeatable=True)

    def request_verb(
        self, link: str, verb: str, names: Collection[str], *, is_trial: bool = False
    ) -> dict[str, Json | ReconcilerError]:
        """Request a verb for mirrors of a link, and return each one's answer or error. Sent once (F-C-202).

        `is_trial` asks what it would do, and changes nothing.

        Raises:
            UnansweredError: It may have begun.
        """
        doing, content = f"{verb} mirrors of link {link}", {"mirror_topic_names": sorted(names)}
        query = {"validate_only": True} if is_trial else {}
        query |= {"include_partition_level_truncation_data": True} if verb == RESTORE else {}
        place = ("links", link, f"mirrors:{_PATH_WORDS.get(verb, verb)}")
        answer = self.change("POST", *place, doing=doing, content=content, is_repeatable=is_trial, **query)
        rows = answer.get("data")
        answers: dict[str, Json | ReconcilerError] = {}
        for row in rows or ():
            code, message = row.get("error_code") or 0, str(row.get("error_message"))
            refusal = build_refusal(f"cluster {self.name}", int(code), message, verb) if code else None
            answers[str(row.get("mirror_topic_name"))] = refusal or row
        return answers

    def _check_cluster(self) -> None:
        """Reject the endpoint or login of another cluster. A cluster is read once, after the first 403 or 404."""
        if self._is_known:
            return
        answer = self._api.read(self._base)
        if answer.status == HTTPStatus.FORBIDDEN:
            message = f"{answer.where} refuses the login ({answer.status}): {answer.message}"
            raise NotAuthorizedError(message, hint=self._api.login.hint)
        if answer.status != HTTPStatus.NOT_FOUND:
            self._is_known = True
            return
        answer = self._api.read(self._base.rpartition("/")[0])
        rows = _object(answer).get("data") if answer.is_success else None
        ids = [str(row.get("cluster_id")) for row in rows or () if isinstance(row, dict)]
        theirs = f"the endpoint is that of {', '.join(ids)}" if ids else "the endpoint does not know it"
        message = f"cluster {self.name}: clusterId is {self.cluster_id}, and {theirs}"
        raise UserError(message, hint="Correct restEndpoint or clusterId of the Cluster.")

    def _read(self, path: Sequence[str], query: Mapping[str, object]) -> HttpAnswer:
        tries = Tries(_SETTLING, within_s=_SETTLING_S)
        while True:
            answer = self._api.read(self._build_path(path, query))
            is_failure = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            is_transient = is_failure or (not answer.is_success and any(text in answer.message for text in _TRANSIENT))
            if not is_transient or tries.has_ended:
                if answer.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                    self._check_cluster()
                return answer
            tries.wait()

    def _build_path(self, path: Sequence[str], query: Mapping[str, object]) -> str:
        words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()}
        place = "".join(f"/{quote(part, safe=':')}" for part in path)
        return self._base + place + (f"?{urlencode(words)}" if words else "")


def _make_login(declared: Cluster, connection: ConfluentConnection, edge: Edge) -> HttpLogin:
    """Use the API key, the login of `rest`, or the token of the brokers' OAUTHBEARER."""
    where, rest = f"{declared.address}: spec.confluent", connection.rest
    key, secret = connection.api_key, connection.api_secret
    secrets = [
        f"{field} ({reference})"
        for field, reference, targets in connection.list_secrets()
        if connection.sends_oauth_token or connection.rest_origin in targets
    ]
    files = rest or connection.security

    def reveal(reference: str) -> str:
        return resolve_secret(reference, edge.environ).reveal()

    def read_headers() -> Mapping[str, str]:
        if key is not None and secret is not None:
            return build_basic_header(reveal(key), reveal(secret))
        if rest is not None and rest.token is not None:
            return build_bearer_header(reveal(rest.token))
        if rest is not None and rest.username is not None and rest.password is not None:
            return build_basic_header(rest.username, reveal(rest.password))
        return {}

    def build_context() -> ssl.SSLContext:
        tls = Tls() if files is None else Tls.read_files(files, edge, where=where)
        return tls.build_context(where=where)

    open_tokens = cache(lambda: build_token_source(declared, edge))
    get_token = (lambda refused: open_tokens().get_token(refused)) if connection.sends_oauth_token else None
    return HttpLogin(read_headers, build_context, _LOGIN_HINT.format(" and ".join(secrets) or "rest"), get_token)


_MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    _NO_LINKS: (
        "a cluster of its kind cannot be the destination of links",
        "Link from a Dedicated or Enterprise cluster, or mirror by jobs.",
    ),
    "has already stopped its mirror": ("", "It is an ordinary topic already: plan again."),
    "is not mirrored": ("it is an ordinary topic", "Plan again."),
    "prefix already exists": ("another link has that prefix", "Choose another prefix."),
    "Topic replication factor must be": (
        "Confluent Cloud sets the number of replicas itself",
        "Remove replicationFactor from the Topic.",
    ),
    "Cannot set configuration": ("its link syncs that config", "Set it on the source."),
}
"""Part of a message → our words and hint. Statuses differ between versions: the message decides."""
_IN_USE: Final = "in use by topics"
_FIRST_CODE: Final = 1_000
"""Error codes begin with a status, such as 404 in 40403."""


def build_refusal(where: str, code: int, message: str, doing: str) -> ReconcilerError:
    """Return the error for a refusal with a status or an error code, such as 40002."""
    status = code if code < _FIRST_CODE else code // 100
    for part, (ours, hint) in _MEANINGS.items():
        if part in message:
            return UserError(f"{where} cannot {doing}: {f'{ours} ({message})' if ours else message}", hint=hint)
    text = f"{where} cannot {doing}: {message} ({code})"
    if _IN_USE in message:
        return BlockedError(text, hint="Fail over, promote or delete its mirrors first.")
    if status in {HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED}:
        return NotAuthorizedError(text, hint="Give this login the rights for it, then run the same command again.")
    if status == HTTPStatus.NOT_FOUND:
        return NotFoundError(text, hint="It was deleted after the plan read it: plan again.")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }:
        return RetryableError(text, hint="Run the same command again in a while.")
    return UserError(text, hint="Correct it in the files, and plan again.")


def check(answer: HttpAnswer, doing: str) -> HttpAnswer:
    """Return a successful response; raise for any other. `doing` completes "cannot …"."""
    if answer.is_success:
        return answer
    error = build_refusal(answer.where, read_code(answer), answer.message, doing)
    if isinstance(error, RetryableError) and answer.status == HTTPStatus.REQUEST_TIMEOUT:
        error = UnansweredError(error.message, hint=error.hint)
    raise error


def read_code(answer: HttpAnswer) -> int:
    """Return the error code of a refusal, or its status if the body has none."""
    try:
        code = _object(answer).get("error_code")
    except UserError:
        code = None
    return code if isinstance(code, int) and code else answer.status


def _object(answer: HttpAnswer) -> Json:
    """Return the JSON object of a response; an empty body is an empty object (F-C-204)."""
    content = answer.json() if answer.body.strip() else {}
    return content if isinstance(content, dict) else {}
