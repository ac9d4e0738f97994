"""Code that all importers share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, Final, NamedTuple, get_args

from reconciler.errors import UserError
from reconciler.lifecycles import Role
from reconciler.manifests import positions
from reconciler.manifests.files import build_label, read_bounded
from reconciler.manifests.positions import (
    FieldPath,
    ManifestError,
    Problem,
    Spot,
    describe_value,
    find_spots,
    format_path,
)
from reconciler.manifests.yaml_documents import parse_yaml
from reconciler.resources.acls import Operation
from reconciler.resources.address import Address
from reconciler.resources.cluster import BROKERS_PROVIDER, FLAT_SEPARATOR
from reconciler.resources.configs import CATALOGS
from reconciler.resources.inventory import DeclaredResource
from reconciler.resources.kafka_configs import ConfigKey
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import list_choices


class SourcePlace(NamedTuple):
    """File and line in a source file; Terraform states have no lines."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class SourceValue(NamedTuple):
    """A value with its position in the source."""

    value: Any
    place: SourcePlace


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTopic:
    """A topic that another tool declares."""

    name: str
    place: SourcePlace
    cluster: str = ""
    """Cluster name in the other tool; empty if that has only one cluster."""
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, SourceValue] = field(default_factory=dict)
    is_protected: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRule:
    """A Kafka access rule in the words of manifests, such as `topics` and `describe-configs`."""

    resource: str
    name: str
    is_prefix: bool
    principal: str
    operation: str
    place: SourcePlace
    permission: str = "allow"
    host: str = "*"
    cluster: str = ""

    def __str__(self) -> str:
        what = f"{self.resource} {self.name}{'*' if self.is_prefix else ''}".strip()
        where = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal}{where} {self.operation} on {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCluster:
    """A cluster and its connection; references replace the secrets."""

    name: str
    place: SourcePlace
    bootstrap_servers: tuple[str, ...] = ()
    cluster_id: str | None = None
    security: Mapping[str, str] = field(default_factory=dict)
    connection: Mapping[str, str] = field(default_factory=dict)
    """Fields of the connection besides brokers and `security`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLink:
    """A mirror link that another tool declares."""

    name: str
    place: SourcePlace
    subject: str
    cluster: str
    """Name of the destination cluster in the other tool; `source` is that of the source cluster."""
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the link's `spec` except `source` and `mirrorTopics`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMirror:
    """A mirror topic that another tool declares."""

    source: str
    name: str
    """Name on the destination; empty if the link's prefix and `source` form it."""
    place: SourcePlace
    subject: str
    cluster: str
    link: str
    state: Role = "mirroring"


@dataclass(frozen=True, slots=True)
class NotImported:
    """A resource or field that was not imported, and the reason."""

    place: SourcePlace
    subject: str
    field: str
    """Path of the field; empty means the whole resource."""
    why: str
    hint: str = ""
    is_expressible: bool = True
    """Whether manifests can express the field, so a corrected value would be imported."""


@dataclass(slots=True)
class SourceReading:
    """Result of reading all files of the other tool."""

    topics: list[ImportedTopic] = field(default_factory=list)
    rules: list[ImportedRule] = field(default_factory=list)
    clusters: list[ImportedCluster] = field(default_factory=list)
    links: dict[tuple[str, str], ImportedLink] = field(default_factory=dict)
    """Links by destination cluster and name."""
    mirrors: list[ImportedMirror] = field(default_factory=list)
    platforms: dict[str, str] = field(default_factory=dict)
    """Platforms by cluster name, except Kafka."""
    lost: list[NotImported] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Files that belong to other tools."""


UNKNOWN = "is an unknown field"


class Fields:
    """A mapping in a source file; records which keys were read.

    For an absent key, readers return `None` or nothing; likewise for a wrong type, which they report.
    """

    def __init__(
        self,
        content: Mapping[str, Any],
        reading: SourceReading,
        locate: Callable[[FieldPath], SourcePlace],
        *,
        subject: str = "",
        path: FieldPath = (),
    ) -> None:
        self.content = content
        self.reading = reading
        self.subject = subject
        self._locate = locate
        self._path = path
        self._read_keys: set[str] = set()

    @property
    def place(self) -> SourcePlace:
        """Position of the mapping."""
        return self._locate(self._path)

    def locate_key(self, key: str) -> SourcePlace:
        """Return a key's position."""
        return self._locate((*self._path, key))

    def read_raw(self, key: str) -> Any:
        """Return a value of any type."""
        self._read_keys.add(key)
        value = self.content.get(key)
        return positions.replace_scalar_texts(value) if isinstance(value, positions.ScalarText) else value

    def read_text(self, key: str) -> str | None:
        """Return a string; numbers and booleans stay as written."""
        value = self.read_raw(key)
        if isinstance(value, str | int | float):
            return positions.format_scalar(self.content[key]) or None
        if value is not None:
            self._report_wrong_type(key, value, "a text")
        return None

    def has_text_name(self, key: str) -> bool:
        """Return whether `name` in the mapping at `key` is a string or absent; report an unquoted number."""
        inner = self.content.get(key)
        name = inner.get("name") if isinstance(inner, dict) else None
        if isinstance(name, bool) or not isinstance(name, positions.ScalarText | int | float):
            return True
        path = (*self._path, key, "name")
        why = f"is {describe_value(name)}, and a name was expected; what it names is left out"
        hint = "Put it in quotes, as it is on the broker: without them YAML may read it as something else."
        self.reading.lost.append(NotImported(self._locate(path), self.subject, format_path(path), why, hint))
        return False

    def read_number(self, key: str) -> int | None:
        """Return an integer, quoted or not."""
        value = self.read_raw(key)
        if value is None or value == "":
            return None
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().removeprefix("-").isdecimal():
            return int(value)
        self._report_wrong_type(key, value, "a whole number")
        return None

    def read_flag(self, key: str) -> bool | None:
        """Return a boolean, quoted or not."""
        value = self.read_raw(key)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            return value.lower() == "true"
        self._report_wrong_type(key, value, "true or false")
        return None

    def read_texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; a single string is a list."""
        value = self.read_raw(key)
        if value is None:
            return ()
        items = value if isinstance(value, list | tuple) else [value]
        if all(isinstance(item, str | int | float) for item in items):
            return tuple(map(positions.format_scalar, items))
        self._report_wrong_type(key, value, "a list of texts")
        return ()

    def read_values(self, key: str) -> dict[str, SourceValue]:
        """Return the values or lists of a mapping, with their positions."""
        inner = self.read_mapping(key)
        return (
            {}
            if inner is None
            else {name: SourceValue(inner.read_raw(name), inner.locate_key(name)) for name in inner.content}
        )

    def read_labels(self, key: str) -> dict[str, str]:
        """Return a mapping of strings."""
        inner = self.read_mapping(key)
        values = {} if inner is None else {name: inner.read_text(name) for name in inner.content}
        return {name: value for name, value in values.items() if value is not None}

    def read_mapping(self, key: str) -> Fields | None:
        """Return a nested mapping."""
        value = self.read_raw(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._report_wrong_type(key, value, "a mapping")
            return None
        return self._build_fields(value, (*self._path, key))

    def iterate_mappings(self, key: str) -> Iterator[Fields]:
        """Yield the mappings in a list."""
        value = self.read_raw(key)
        if value is None:
            return
        if not isinstance(value, list | tuple):
            self._report_wrong_type(key, value, "a list")
            return
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield self._build_fields(item, (*self._path, key, index))
            else:
                self._report_wrong_type(key, item, "a mapping", index)

    def iterate_named(self, key: str) -> Iterator[tuple[str, Fields]]:
        """Yield names and their mappings, which may be empty."""
        inner = self.read_mapping(key)
        for name in inner.content if inner is not None else ():
            value = inner.read_raw(name) if inner is not None else None
            if value is None or isinstance(value, dict):
                yield name, self._build_fields(value or {}, (*self._path, key, name))
            else:
                self._report_wrong_type(key, value, "a mapping", name)

    def report_if_present(self, key: str, why: str, hint: str = "") -> None:
        """Report why a key, if present, was not imported."""
        if self._is_present(key):
            self.report_lost(key, why, hint)

    def report_lost(self, key: str, why: str, hint: str = "") -> None:
        """Report why a field was not imported, or with an empty key the whole resource."""
        self._report(key, why, hint, is_expressible=True)

    def report_inexpressible(self, key: str, why: str, hint: str = "") -> None:
        """Report that manifests cannot express a field, or with an empty key the whole resource."""
        if not key or self._is_present(key):
            self._report(key, why, hint, is_expressible=False)

    def ignore_keys(self, *keys: str) -> None:
        """Mark keys as read without importing them."""
        self._read_keys.update(keys)

    def report_unread(self, why: str = UNKNOWN, *, is_expressible: bool = True) -> None:
        """Report all unread keys."""
        for key in self.content:
            if key not in self._read_keys and self._is_present(key):
                self._report(key, why, "", is_expressible=is_expressible)

    def _is_present(self, key: str) -> bool:
        value = self.read_raw(key)
        return value is not None and value not in ("", [], {})

    def _report(self, key: str, why: str, hint: str, *, is_expressible: bool) -> None:
        path = (*self._path, key) if key else ()
        place = self.locate_key(key) if key else self.place
        self.reading.lost.append(
            NotImported(place, self.subject, format_path(path), why, hint, is_expressible=is_expressible)
        )

    def _build_fields(self, content: Mapping[str, Any], path: FieldPath) -> Fields:
        return Fields(content, self.reading, self._locate, subject=self.subject, path=path)

    def _report_wrong_type(self, key: str, value: Any, wanted: str, at: str | int | None = None) -> None:
        # The value may be a secret, so the message names only its type.
        kind = "a text" if isinstance(value, str) else describe_value(value)
        path = (*self._path, key) if at is None else (*self._path, key, at)
        why = f"is {kind}, and {wanted} was expected"
        self.reading.lost.append(NotImported(self._locate(path), self.subject, format_path(path), why))


MAX_FILES: Final = 50_000
YAML: Final = (".yaml", ".yml")
_TEMPLATES: Final = (b"{{", b"{%")
_MERGE: Final = "<<"


class Document(NamedTuple):
    """A YAML or JSON document and the positions of its fields."""

    file: str
    path: FilePath
    content: Any
    line: int
    spots: Mapping[FieldPath, Spot]

    def locate(self, path: FieldPath) -> SourcePlace:
        """Return the position of a field, or of the nearest mapping that contains it."""
        for length in range(len(path), -1, -1):
            if spot := self.spots.get(path[:length]):
                return SourcePlace(self.file, spot.line)
        return SourcePlace(self.file, self.line)


def list_files_below(path: FilePath) -> tuple[FilePath, ...]:
    """Return a file, or all files below a folder except dot files."""
    if not path.exists():
        raise UserError(f"there is no {path}", hint="Name the file or folder that the other tool reads.")
    if not path.is_dir():
        return (path,)
    files: list[FilePath] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [FilePath(folder) / name for name in sorted(names) if not name.startswith(".")]
        if len(files) > MAX_FILES:
            raise UserError(
                f"{path} holds more than {MAX_FILES:,} files", hint="Name the folder that the other tool reads."
            )
    return tuple(files)


def read_text(path: FilePath, cwd: FilePath) -> bytes:
    """Read a file; reject an unreadable or too large one."""
    raw = read_bounded(path, build_label(path, cwd))
    if isinstance(raw, Problem):
        raise build_files_error([raw])
    return raw


def read_documents(files: Iterable[FilePath], cwd: FilePath) -> tuple[Document, ...]:
    """Read all documents of YAML or JSON files."""
    documents: list[Document] = []
    problems: list[Problem] = []
    for path in files:
        label = build_label(path, cwd)
        raw = read_bounded(path, label)
        if isinstance(raw, Problem):
            problems.append(raw)
            continue
        parsed = parse_yaml(raw, label, may_merge=True)
        problems += _add_template_hints(parsed.problems, raw)
        where = () if parsed.problems else find_spots(raw)
        for number, document in enumerate(parsed.documents):
            at = where[number] if number < len(where) else {}
            documents.append(Document(label, path, expand_merge_keys(document.as_written), document.line, at))
    if problems:
        raise build_files_error(problems)
    return tuple(documents)


def build_files_error(problems: Iterable[Problem]) -> ManifestError:
    """Build the error for unreadable files."""
    return ManifestError(tuple(problems), hint="Nothing was written: correct the files, or name others.")


def expand_merge_keys(content: Any) -> Any:
    """Expand YAML merge keys (`<<`)."""
    match content:
        case dict():
            return {
                **_merge_bases(content.get(_MERGE)),
                **{key: expand_merge_keys(item) for key, item in _entries_without_merge(content)},
            }
        case list():
            return [expand_merge_keys(item) for item in content]
        case _:
            return content


def _entries_without_merge(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in content.items() if key != _MERGE)


def _merge_bases(merge: Any) -> dict[str, Any]:
    bases: dict[str, Any] = {}
    for base in reversed(merge if isinstance(merge, list) else [merge]):
        if isinstance(base, dict):
            bases.update(expand_merge_keys(base))
    return bases


def _add_template_hints(problems: Iterable[Problem], raw: bytes) -> Iterator[Problem]:
    is_template = any(mark in raw for mark in _TEMPLATES)
    for problem in problems:
        hint = "It looks like a template: render it first, and import the result" if is_template else problem.hint
        yield problem._replace(hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCluster:
    """A cluster of the workspace that gets the imported resources."""

    name: str
    separator: str = FLAT_SEPARATOR
    has_namespaces: bool = False
    """Whether the platform has namespaces. If so, `separator` occurs only in names of the other tool."""
    provider: str = BROKERS_PROVIDER
    is_declared: bool = False
    identity: tuple[str, ...] = ()
    """What identifies the declared cluster, such as its id or brokers."""
    declared: Mapping[Address, DeclaredResource] = field(default_factory=dict)

    @property
    def catalog(self) -> Mapping[str, ConfigKey] | None:
        """Known config keys of topics; `None` if only a plan can check keys."""
        return CATALOGS.get(self.provider)


NO_CREDENTIALS: Final = "users and their passwords are not managed here, and secrets are never copied"
NO_CLIENT_QUOTA: Final = "quotas of users and clients are not managed here; they stay on the cluster as they are"
NO_TEXT: Final = "manifests have no field for it"
OF_THE_TOOL: Final = "it belongs to the other tool, and is not needed here"
PLACEMENT: Final = "the cluster decides on which brokers replicas are; it stays as it is"
NOT_KAFKA: Final = "it is not a Kafka topic or access rule"


EVERYTHING: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
_RESOURCES: Final[Mapping[str, str]] = {
    "topic": "topics",
    "group": "groups",
    "transactionalid": "transactional-ids",
    "cluster": "cluster",
    "user": "user",
    "delegationtoken": "delegation-token",
}
_OPERATIONS: Final = frozenset(get_args(get_args(Operation)[0])) | {"create-tokens", "describe-tokens"}
_PREFIX: Final[Mapping[str, bool]] = {"literal": False, "": False, "prefixed": True, "prefix": True}
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRule:
    """An access rule of another tool; each operation becomes an `ImportedRule`."""

    resource: str | None
    name: str | None
    operations: Iterable[str]
    principal: str | None
    pattern: str | None = None
    permission: str | None = None
    host: str | None = None
    cluster: str = ""

    def add_to(self, at: Fields) -> None:
        """Add an `ImportedRule` for each operation, or report why the rule is invalid."""
        resource = _RESOURCES.get(re.sub(r"[-_ ]", "", self.resource or "").lower())
        is_prefix = _PREFIX.get((self.pattern or "").lower())
        permission = (self.permission or "allow").lower()
        name = self.name or (CLUSTER_NAME if resource == "cluster" else None)
        if resource is None:
            at.report_lost("", f"{self.resource or 'nothing'!r} is not a resource type of access rules")
        elif is_prefix is None:
            hint = "Name the topics one by one, or a prefix that ends with the separator of namespaces."
            at.report_lost("", f"a pattern of the kind {self.pattern!r} has no place here", hint)
        elif permission not in {"allow", "deny"}:
            at.report_lost("", f"{self.permission!r} is neither allow nor deny")
        elif not name or not self.principal:
            at.report_lost("", f"it names no {'principal' if name else 'resource'}")
        else:
            for operation in self._parse_operations(at):
                rule = ImportedRule(
                    resource=resource,
                    name=name,
                    is_prefix=is_prefix,
                    principal=self.principal,
                    operation=operation,
                    place=at.place,
                    permission=permission,
                    host=self.host or EVERYTHING,
                    cluster=self.cluster,
                )
                at.reading.rules.append(rule)

    def _parse_operations(self, at: Fields) -> Iterable[str]:
        for text in self.operations:
            word = parse_operation(text)
            if word is None:
                at.report_lost("", f"{text!r} is not an operation; operations: {list_choices(_OPERATIONS)}")
            else:
                yield word


def read_resource_rule(
    entry: Fields, principal: str, *, name: str, operations: tuple[str, ...] = ("operations",), cluster: str = ""
) -> None:
    """Import an access rule with a `resource` mapping."""
    resource = entry.read_mapping("resource")
    if resource is None:
        entry.report_lost("", "it names no resource")
        return
    SourceRule(
        resource=resource.read_text("type"),
        name=resource.read_text(name),
        pattern=resource.read_text("patternType"),
        principal=principal,
        permission=entry.read_text("type"),
        host=entry.read_text("host"),
        operations=[word for field in operations for word in entry.read_texts(field)],
        cluster=cluster,
    ).add_to(entry)
    resource.report_unread()
    entry.report_unread()


def parse_operation(text: str) -> str | None:
    """Parse an operation, such as `DescribeConfigs` or `DESCRIBE_CONFIGS`; `None` if unknown."""
    word = (text if text.isupper() else _HUMP.sub("-", text)).replace("_", "-").lower()
    return word if word in _OPERATIONS else None


PASSWORD: Final = "${env:KAFKA_PASSWORD}"  # noqa: S105 - the reference, not a password
CLIENT_SECRET: Final = "${env:KAFKA_CLIENT_SECRET}"  # noqa: S105 - a reference, too

_SECRETS: Final = frozenset({"password", "clientSecret", "apiKey", "apiSecret"})
_ODD: Final = re.compile(r"[^A-Za-z0-9]+")
_MECHANISMS: Final[Mapping[str, str]] = {
    "plain": "PLAIN",
    "scramsha256": "SCRAM-SHA-256",
    "scramsha512": "SCRAM-SHA-512",
    "oauthbearer": "OAUTHBEARER",
    "awsmskiam": "AWS_MSK_IAM",
}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of a connection's certificate files."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """SASL login of a connection, without secrets."""

    mechanism: str | None
    username: str | None = None
    token_url: str | None = None
    client_id: str | None = None
    scope: str | None = None


def name_secrets(fields: Mapping[str, str], cluster: str) -> dict[str, str]:
    """Insert the cluster's name into the environment variables of secrets."""
    if not cluster:
        return dict(fields)
    own = f"_{_ODD.sub('_', cluster).upper()}_"
    return {key: value.replace("_", own, 1) if key in _SECRETS else value for key, value in fields.items()}


SECURITY: Final = f"spec.{BROKERS_PROVIDER}.security"


def build_security(at: Fields, tls: TlsFiles | None, sasl: SaslLogin | None) -> dict[str, str]:
    """Return the `security` fields of a Cluster; report missing or unsupported fields at `at`."""
    login = _build_login(at, sasl) if sasl is not None else {}
    protocol = ("SASL_" if login else "") + ("SSL" if tls is not None else "PLAINTEXT")
    files = {} if tls is None else {"caFile": tls.ca_file, "certFile": tls.cert_file, "keyFile": tls.key_file}
    security = {"protocol": protocol, **login, **{key: path for key, path in files.items() if path}}
    return {} if security == {"protocol": "PLAINTEXT"} else security


def _build_login(at: Fields, sasl: SaslLogin) -> dict[str, str]:
    mechanism = _MECHANISMS.get((sasl.mechanism or "plain").lower().replace("-", "").replace("_", ""))
    if mechanism is None:
        hint = f"Write {SECURITY} of the Cluster by hand: one of {', '.join(sorted(_MECHANISMS.values()))}."
        at.report_lost("", f"logging in by {sasl.mechanism} is not done here", hint)
        return {}
    if mechanism == "AWS_MSK_IAM":
        return {"mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        needed = {"tokenEndpointUrl": sasl.token_url, "clientId": sasl.client_id}
        rest = {"clientSecret": CLIENT_SECRET, **({"scope": sasl.scope} if sasl.scope else {})}
    else:
        needed, rest = {"username": sasl.username}, {"password": PASSWORD}
    missing = [key for key, value in needed.items() if not value]
    if missing:
        hint = f"Write {SECURITY} of the Cluster by hand."
        at.report_lost("", f"logging in by {mechanism} needs {' and '.join(missing)}, which is not written here", hint)
        return {}
    return {"mechanism": mechanism, **{key: value for key, value in needed.items() if value}, **rest}
