"""What a document says of tiering, as a policy that several share. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import ValidationError

from reconciler.planning.wanted.policies import NEEDS_TIERING, compile_policy
from reconciler.resources.metadata import NameOnly
from reconciler.resources.quantities import format_duration, format_size
from reconciler.resources.tieringpolicy import TieringPolicy, TieringPolicySpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from reconciler.resources.capabilities import Capabilities

Words: TypeAlias = tuple[tuple[str, str], ...]
"""The tiering configs of one document, sorted."""

_TOTAL: Final = "-2"
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "remote.write": ("remoteWrite",),
    "remote.read": ("remoteRead",),
    "remote.delete": ("remoteDelete",),
    "remote.log.disable.policy": ("onDisable",),
    "local.retention.ms": ("localRetention", "time"),
    "local.retention.bytes": ("localRetention", "bytes"),
    "retention.local.target.ms": ("localRetention", "time"),
    "retention.local.target.bytes": ("localRetention", "bytes"),
    "retention.local.strict": ("localRetention", "strict"),
    "initial.retention.local.target.ms": ("initialLocalRetention", "time"),
    "initial.retention.local.target.bytes": ("initialLocalRetention", "bytes"),
}


class Policies:
    """The policies of a cluster: one for each way that several documents, or one, say tiering."""

    def __init__(
        self,
        layers: Iterable[Mapping[str, str]],
        capabilities: Capabilities,
        taken: Mapping[str, TieringPolicy],
    ) -> None:
        """Name a policy for everything that is said, the most common first, if a policy means exactly that here.

        One that is `taken` is named where it says the same, and not declared again.
        """
        counted = Counter(words for layer in layers if (words := _words(layer)))
        self._names: dict[Words, str] = {}
        self.declared: dict[str, TieringPolicy] = {}
        for words, _count in sorted(counted.items(), key=lambda each: (-each[1], each[0])):
            spec = _spec(dict(words))
            if spec is None or compile_policy(spec, capabilities) != dict(words):
                continue
            known = next((name for name in sorted(taken) if taken[name].spec == spec), None)
            name = known or _free(_name(spec), {*taken, *self.declared})
            self._names[words] = name
            if known is None:
                self.declared[name] = TieringPolicy(metadata=NameOnly(name=name), spec=spec)

    def split(self, layer: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
        """Return the configs of a document without what a policy says in their place, and the name of that policy."""
        name = self._names.get(_words(layer))
        if name is None:
            return dict(layer), None
        return {key: value for key, value in layer.items() if key not in NEEDS_TIERING}, name


def _free(stem: str, taken: Collection[str]) -> str:
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    return name


def _words(layer: Mapping[str, str]) -> Words:
    return tuple(sorted((key, value) for key, value in layer.items() if key in NEEDS_TIERING))


def _spec(words: Mapping[str, str]) -> TieringPolicySpec | None:
    """Return the policy that may mean these configs; whether it does is seen by compiling it."""
    said: dict[str, Any] = dict(_switches(words))
    for key, value in words.items():
        path = _FIELDS.get(key)
        if path is None or value == _TOTAL:
            continue
        within = said
        for part in path[:-1]:
            within = within.setdefault(part, {})
        within[path[-1]] = value == "true" if value in {"true", "false"} else _number(value)
    try:
        return TieringPolicySpec.model_validate(said)
    except ValidationError:
        return None


def _switches(words: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    stored = words.get("remote.storage.enable")
    if stored is not None:
        yield "remoteWrite", stored == "true" and words.get("remote.log.copy.disable") != "true"
        yield "remoteRead", stored == "true"
    if words.get("remote.log.delete.on.disable") == "true":
        yield "onDisable", "delete"


def _number(value: str) -> int | str:
    return int(value) if value.removeprefix("-").isdecimal() else value


def _name(spec: TieringPolicySpec) -> str:
    """Name a policy by what it does: `tiered`, `tiered-local-6h`, `read-only`, `untiered`."""
    stem = {(True, True): "tiered", (False, True): "read-only", (False, False): "untiered"}.get(
        (bool(spec.remote_write), bool(spec.remote_read)), "write-only"
    )
    if spec.remote_write is None and spec.remote_read is None:
        stem = "tiering"
    local = spec.local_retention
    parts = [stem]
    if local is not None and (local.time is not None or local.bytes is not None):
        parts.append("local")
        parts += [format_duration(local.time)] if local.time is not None else []
        parts += [format_size(local.bytes)] if local.bytes is not None else []
    return "-".join(parts).replace(" ", "-").lower()
