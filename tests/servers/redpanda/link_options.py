"""The configurations of a shadow link: read from JSON as Redpanda does, changed by field masks, checked and shown."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import hashlib
import re
import time
from collections.abc import Iterable
from typing import Any, Final

from tests.servers.redpanda.cluster import load_table

TABLE: Final = load_table("shadow_links.yaml")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_ADDRESS: Final = re.compile(r".+:\d+")
_SNAKE: Final = re.compile("_([a-z])")

Options = dict[str, Any]


class ConnectError(Exception):
    """An error that is answered as Connect does."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.status = code, TABLE["errors"][code]
        super().__init__(message)


def format_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 10**9:09d}Z"


def to_camel(document: Any) -> Any:
    """Return a document whose keys are camelCase; Redpanda reads both spellings."""
    if isinstance(document, list):
        return [to_camel(row) for row in document]
    if isinstance(document, dict):
        return {_camel(key): to_camel(value) for key, value in document.items()}
    return document


def read_options(document: Options, version: tuple[int, int]) -> Options:
    """Return the configurations with all defaults; unknown keys are ignored, as Redpanda does."""
    groups = _list_groups(version)
    if not isinstance(document, dict) or not all(isinstance(document.get(group) or {}, dict) for group in groups):
        raise ConnectError("invalid_argument", "invalid request input")
    return {group: _read_group(group, defaults, document.get(group) or {}) for group, defaults in groups.items()}


def read_milliseconds(timestamp: str) -> int:
    """Return a timestamp as Kafka has it."""
    try:
        moment = dt.datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", timestamp))
    except ValueError as error:
        raise ConnectError("invalid_argument", "invalid request input") from error
    return int(moment.timestamp() * 1000)


def change_options(old: Options, new: Options, mask: str, version: tuple[int, int]) -> Options:
    """Return options changed by a field mask.

    A path to a message replaces the message. A path to a list appends to it, as Redpanda does.
    """
    changed = copy.deepcopy(old)
    for path in filter(None, mask.split(",")):
        root, *parts = map(_camel, path.split("."))
        groups = _list_groups(version)
        known = {
            group: {*defaults, *(name for row in TABLE["optional"].get(group, ()) for name in row)}
            for group, defaults in groups.items()
        }
        is_known = parts[:1] == [] or (parts[0] in known and (len(parts) == 1 or parts[1] in known[parts[0]]))
        if root not in {"name", "uid", "status", "configurations"} or not is_known:
            raise ConnectError("invalid_argument", f"Invalid update mask for shadow_link: {path}")
        if root == "configurations" and not parts:
            changed = copy.deepcopy(new)
        elif root == "configurations":
            _apply(changed, new, parts)
    for group in changed:
        _keep_secrets(old.get(group, {}), changed[group])
    return changed


def check_options(options: Options) -> None:
    """Raise `invalid_argument` for options that no link may have."""
    client = options["clientOptions"]
    if not client["bootstrapServers"] or not all(_ADDRESS.fullmatch(server) for server in client["bootstrapServers"]):
        raise ConnectError("invalid_argument", f"Bootstrap servers are invalid: {client['bootstrapServers']}")
    for kind, login in client.get("authenticationConfiguration", {}).items():
        is_known = kind == "plainConfiguration" or login.get("scramMechanism") in TABLE["mechanisms"]
        if not is_known or not login.get("username") or not login.get("password"):
            raise ConnectError("invalid_argument", "SCRAM configuration is invalid")
    if timestamp := options["topicMetadataSyncOptions"].get("startAtTimestamp"):
        read_milliseconds(timestamp)
    for name, group in TABLE["filters"].items():
        for row in options.get(group, {}).get(name, ()):
            if row.get("patternType") not in TABLE["patterns"] or row.get("filterType") not in TABLE["choices"]:
                raise ConnectError("invalid_argument", "Invalid cluster link configuration: a type is unspecified")
    for row in options["topicMetadataSyncOptions"]["autoCreateShadowTopicFilters"]:
        _check_topic_filter(row.get("name", ""), is_prefix=row["patternType"] == TABLE["patterns"][1])
    for row in options["securitySyncOptions"]["aclFilters"]:
        to_acl_filter(row)
    for name in options["topicMetadataSyncOptions"]["syncedShadowTopicProperties"]:
        if name in TABLE["never"]:
            raise ConnectError("invalid_argument", f"Topic property '{name}' is excluded from mirroring")


def show_options(options: Options, client_id: str) -> Options:
    """Return options as answers have them: with what is in effect, and without secrets."""
    shown = copy.deepcopy(options)
    for group in shown.values():
        for name in [name for name in group if name in TABLE["effective"]]:
            is_default = group[name] in {0, "0s"}
            group[f"effective{name[0].upper()}{name[1:]}"] = TABLE["effective"][name] if is_default else group[name]
        for login in group.get("authenticationConfiguration", {}).values():
            login.update(password="", passwordSet=True)
        if key := group.get("tlsSettings", {}).get("tlsPemSettings", {}).pop("key", ""):
            digest = base64.b64encode(hashlib.sha256(key.encode()).digest()).decode()
            group["tlsSettings"]["tlsPemSettings"]["keyFingerprint"] = digest
    shown["clientOptions"]["clientId"] = client_id
    return shown


def is_selected(name: str, filters: Iterable[Options]) -> bool:
    """Whether a name passes filters: an exclusion wins, wherever it stands."""
    matching = {row["filterType"] for row in filters if _matches(name, row)}
    return matching == {"FILTER_TYPE_INCLUDE"}


def list_properties(options: Options) -> list[str]:
    """Return the names of the topic properties that a link copies."""
    group = options["topicMetadataSyncOptions"]
    defaults = () if group["excludeDefault"] else TABLE["by_default"]
    return sorted({*TABLE["always"], *defaults, *group["syncedShadowTopicProperties"]})


def to_acl_filter(row: Options) -> dict[str, Any]:
    """Return the fields of a DescribeAcls request for an ACL filter."""
    resource, access = row.get("resourceFilter") or {}, row.get("accessFilter") or {}
    names = {
        "resource_type": resource.get("resourceType"),
        "pattern_type": resource.get("patternType"),
        "operation": access.get("operation"),
        "permission_type": access.get("permissionType"),
    }
    unknown = [field for field, name in names.items() if name not in TABLE["acls"][field]]
    if unknown:
        raise ConnectError("invalid_argument", f"Invalid cluster link configuration: {unknown[0]} is unspecified")
    numbers = {field: TABLE["acls"][field][name] for field, name in names.items()}
    return {
        "resource_type_filter": numbers["resource_type"],
        "pattern_type_filter": numbers["pattern_type"],
        "operation": numbers["operation"],
        "permission_type": numbers["permission_type"],
        "resource_name_filter": resource.get("name") or None,
        "principal_filter": access.get("principal") or None,
        "host_filter": access.get("host") or None,
    }


def _list_groups(version: tuple[int, int]) -> Options:
    return {**TABLE["defaults"], **(TABLE["defaults_from_26.2"] if version >= (26, 2) else {})}


def _read_group(group: str, defaults: Options, document: Options) -> Options:
    values = {
        name: _convert(document[name], default) if document.get(name) is not None else copy.deepcopy(default)
        for name, default in defaults.items()
    }
    optional = [name for row in TABLE["optional"].get(group, ()) for name in row if document.get(name) is not None]
    values |= {name: copy.deepcopy(document[name]) for name in optional}
    for login in values.get("authenticationConfiguration", {}).values():
        login.pop("passwordSet", None)
        if login.get("password"):
            login["passwordSetAt"] = format_now()
    return values


def _convert(value: Any, default: Any) -> Any:
    if type(default) is int and isinstance(value, str) and value.isdigit():
        return int(value)
    if default == "0s" and isinstance(value, str) and re.fullmatch(r"\d+(\.\d{1,9})?s", value or "0s"):
        seconds = float(value.rstrip("s") or 0)
        return f"{int(seconds)}s" if seconds == int(seconds) else f"{seconds:.3f}s"
    if type(value) is not type(default) or default == "0s":
        raise ConnectError("invalid_argument", "invalid request input")
    return value


def _apply(old: Options, new: Options, path: list[str]) -> None:
    name, *rest = path
    for row in (row for rows in TABLE["optional"].values() for row in rows if name in row):
        for other in row if not rest else ():
            old.pop(other, None)
    if name not in new:
        old.pop(name, None)
    elif isinstance(new[name], list):
        old[name] = [*old.get(name, ()), *new[name]]
    elif rest and isinstance(new[name], dict):
        _apply(old.setdefault(name, {}), new[name], rest)
    else:
        old[name] = copy.deepcopy(new[name])


def _keep_secrets(old: Options, new: Options) -> None:
    """Take over a password or key that an update left out; a password that did not change keeps its time."""
    before = old.get("authenticationConfiguration", {})
    for kind, login in new.get("authenticationConfiguration", {}).items():
        same = before.get(kind, {})
        if not login.get("password") and login.get("username"):
            login["password"] = same.get("password", "")
        if login.get("password") and login["password"] == same.get("password"):
            login["passwordSetAt"] = same["passwordSetAt"]
    pem, old_pem = (each.get("tlsSettings", {}).get("tlsPemSettings", {}) for each in (new, old))
    if pem.get("cert") and not pem.get("key"):
        pem["key"] = old_pem.get("key", "")


def _check_topic_filter(name: str, *, is_prefix: bool) -> None:
    is_wildcard = name == "*" and not is_prefix
    refused = TABLE["refused_prefixes"] if is_prefix else ()
    if not (is_wildcard or _NAME.fullmatch(name)) or name in {*TABLE["refused_names"], *refused}:
        raise ConnectError("invalid_argument", f"Topic filter is invalid: {name!r}")


def _matches(name: str, row: Options) -> bool:
    if row["patternType"] == TABLE["patterns"][1]:
        return name.startswith(str(row["name"]))
    is_internal = name.startswith(tuple(TABLE["refused_prefixes"]))
    return name == row["name"] or (row["name"] == "*" and not is_internal)


def _camel(name: str) -> str:
    return _SNAKE.sub(lambda match: match[1].upper(), name)
