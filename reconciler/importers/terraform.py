"""Import Terraform and OpenTofu state, or the output of `terraform show -json`.

Read are the resources of the provider Mongey/kafka: topics, access rules and others. Declarations (`*.tf`) are not
evaluated: what they come to only the tool itself knows, and its state says it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from reconciler.errors import UserError
from reconciler.importers.base import (
    NO_CLIENT_QUOTA,
    NO_CREDENTIALS,
    Fields,
    FoundTopic,
    Place,
    Reading,
    SaidRule,
    read_text,
    refused,
)
from reconciler.manifests.files import label_of, read_bounded
from reconciler.manifests.positions import Problem

DECLARED: Final = (".tf", ".tofu")
STATE: Final = ".tfstate"
KINDS: Final = frozenset(
    {"kafka_topic", "kafka_acl", "kafka_quota", "kafka_quota_composite", "kafka_user_scram_credential"}
)
VERSION: Final = 4
_MANAGED: Final = "managed"
_DEPOSED: Final = "it is deposed: another one is in its place, and the next apply there deletes it"
_ALIAS: Final = re.compile(r'provider\["[^"]*"\]\.([A-Za-z0-9_-]+)$')


def read_terraform(path: Path, files: tuple[Path, ...], cwd: Path, reading: Reading) -> bool:
    """Take what Terraform's states say into a reading; tell whether there was any.

    Raises:
        ManifestError: Some are broken; lists every problem of every file.
        UserError: There are declarations alone.
    """
    declared = [file for file in files if file.suffix in DECLARED]
    own = [file for file in files if file not in declared and (file == path or is_state(file))]
    if declared and not own:
        message = f"{label_of(declared[0], cwd)} declares what Terraform works out, and there is no state beside it"
        hint = "Run there: terraform show -json > terraform.json (or terraform state pull > terraform.tfstate)"
        raise UserError(message, hint=f"{hint}. Then import that file.")
    for file in own:
        _take_state(read_text(file, cwd), label_of(file, cwd), reading)
    reading.files = [label_of(file, cwd) for file in own]
    reading.unread = [label_of(file, cwd) for file in declared]
    return bool(own)


def is_state(file: Path) -> bool:
    """Tell whether a file is a state, also one that is broken or of another version."""
    if file.suffix == STATE:
        return True
    raw = read_bounded(file, file.name)
    return file.suffix == ".json" and not isinstance(raw, Problem) and _is_state(raw)


def _is_state(raw: bytes) -> bool:
    """Tell whether a file is a state, also one of a version that is not read."""
    content = _parsed(raw)
    return isinstance(content, dict) and bool({"terraform_version", "format_version"} & content.keys())


def _take_state(raw: bytes, label: str, reading: Reading) -> None:
    """Take what a state says into a reading.

    Raises:
        ManifestError: It is no state, or one of another version.
    """
    content = _content(raw, label)
    found = _resources(content) if "version" in content else _shown(content)
    for address, kind, provider, attributes, is_deposed in found:
        fields = Fields(attributes, reading, lambda _: Place(label), subject=address)
        if is_deposed:
            fields.unsaid("", _DEPOSED)
            continue
        alias = _ALIAS.search(provider)
        _take_resource(kind, fields, alias[1] if alias else "")


def _content(raw: bytes, label: str) -> dict[str, Any]:
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        message = f"is not JSON: {getattr(error, 'msg', 'it is nested too deeply')}"
        hint = "Write it anew: terraform state pull > terraform.tfstate"
        raise refused([Problem(label, line, getattr(error, "colno", None), "", message, hint)]) from error
    if not isinstance(content, dict) or not _is_state(raw):
        hint = "Name a terraform.tfstate, or what `terraform show -json` printed"
        raise refused([Problem(label, None, None, "", "is no state of Terraform", hint)])
    if content.get("version", VERSION) != VERSION:
        hint = "Terraform 0.12 or newer writes it so: terraform state pull > terraform.tfstate"
        message = f"is a state of version {content['version']}, and version {VERSION} is read"
        raise refused([Problem(label, None, None, "", message, hint)])
    return content


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _resources(content: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any], bool]]:
    """Yield address, kind, provider and attributes of each instance, and whether it is deposed."""
    for resource in _mappings(content.get("resources")):
        kind, name = str(resource.get("type")), str(resource.get("name"))
        if resource.get("mode", _MANAGED) != _MANAGED or kind not in KINDS:
            continue
        module = f"{resource['module']}." if isinstance(resource.get("module"), str) else ""
        for instance in _mappings(resource.get("instances")):
            key = instance.get("index_key")
            index = "" if key is None else f"[{json.dumps(key)}]"
            attributes = instance.get("attributes")
            if isinstance(attributes, dict):
                address, provider = f"{module}{kind}.{name}{index}", str(resource.get("provider", ""))
                yield address, kind, provider, attributes, "deposed" in instance


def _shown(content: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any], bool]]:
    """Yield the same of what `terraform show -json` prints; it names no alias of a provider."""
    values = content.get("values")
    waiting = _mappings([values.get("root_module")]) if isinstance(values, dict) else []
    while waiting:
        module = waiting.pop(0)
        for resource in _mappings(module.get("resources")):
            kind, attributes = str(resource.get("type")), resource.get("values")
            if resource.get("mode", _MANAGED) == _MANAGED and kind in KINDS and isinstance(attributes, dict):
                yield str(resource.get("address", kind)), kind, "", attributes, "deposed_key" in resource
        waiting += _mappings(module.get("child_modules"))


def _mappings(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _take_resource(kind: str, fields: Fields, cluster: str) -> None:
    """Take one resource; every field of it that has no place here is said."""
    fields.pass_over("id", "timeouts")
    match kind:
        case "kafka_topic":
            _take_topic(fields, cluster)
        case "kafka_acl":
            _take_rule(fields, cluster)
        case "kafka_user_scram_credential":
            fields.unsaid("", NO_CREDENTIALS)
            return
        case _:
            fields.unsaid("", NO_CLIENT_QUOTA)
            return
    fields.rest()


def _take_topic(fields: Fields, cluster: str) -> None:
    topic = FoundTopic(
        name=fields.text("name") or "",
        place=fields.place,
        cluster=cluster,
        partitions=fields.number("partitions"),
        replication_factor=fields.number("replication_factor"),
        configs=fields.said("config"),
    )
    fields.reading.topics.append(topic)


def _take_rule(fields: Fields, cluster: str) -> None:
    SaidRule(
        resource=fields.text("resource_type"),
        name=fields.text("resource_name"),
        pattern=fields.text("resource_pattern_type_filter"),
        principal=fields.text("acl_principal"),
        permission=fields.text("acl_permission_type"),
        host=fields.text("acl_host"),
        operations=fields.texts("acl_operation"),
        cluster=cluster,
    ).add_to(fields)
