"""A state of Terraform or OpenTofu: the file itself (version 4), or what `terraform show -json` prints of it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.importing.fields import Fields
from reconciler.manifests.importing.found import Place
from reconciler.manifests.importing.sources import refused
from reconciler.manifests.importing.terraform import KINDS, take_resource
from reconciler.manifests.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.manifests.importing.found import Reading

VERSION: Final = 4
_MANAGED: Final = "managed"
_DEPOSED: Final = "it is deposed: another one is in its place, and the next apply there deletes it"
_ALIAS: Final = re.compile(r'provider\["[^"]*"\]\.([A-Za-z0-9_-]+)$')


def is_state(raw: bytes) -> bool:
    """Tell whether a file is a state, also one of a version that is not read."""
    content = _parsed(raw)
    return isinstance(content, dict) and bool({"terraform_version", "format_version"} & content.keys())


def read(raw: bytes, label: str, reading: Reading) -> None:
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
        take_resource(kind, fields, alias[1] if alias else "")


def _content(raw: bytes, label: str) -> dict[str, Any]:
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        message = f"is not JSON: {getattr(error, 'msg', 'it is nested too deeply')}"
        hint = "Write it anew: terraform state pull > terraform.tfstate"
        raise refused([Problem(label, line, getattr(error, "colno", None), "", message, hint)]) from error
    if not isinstance(content, dict) or not is_state(raw):
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
