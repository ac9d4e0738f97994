"""Access rules in the words of other tools, as ours: `Topic`, `DESCRIBE_CONFIGS`, `prefix`, `Allow` and their like."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from reconciler.manifests.importing.found import FoundRule
from reconciler.manifests.suggestions import one_of
from reconciler.resources.acls import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.manifests.importing.fields import Fields

EVERYTHING: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""What Kafka calls the one thing of the kind `cluster`."""

_RESOURCES: Final[Mapping[str, str]] = {
    "topic": "topics",
    "group": "groups",
    "transactionalid": "transactional-ids",
    "cluster": "cluster",
    "user": "user",
    "delegationtoken": "delegation-token",
}
_OPERATIONS: Final = frozenset(get_args(get_args(Operation)[0])) | {"create-tokens", "describe-tokens"}
"""Those on tokens manifests have no words for; that is told by what is about them."""
_PREFIX: Final[Mapping[str, bool]] = {"literal": False, "": False, "prefixed": True, "prefix": True}
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidRule:
    """One access rule as another tool says it; several operations are several rules."""

    resource: str | None
    name: str | None
    operations: Iterable[str]
    principal: str | None
    pattern: str | None = None
    permission: str | None = None
    host: str | None = None
    cluster: str = ""

    def add_to(self, at: Fields) -> None:
        """Add what it says to the reading of `at`, or say there why it cannot be said."""
        resource = _RESOURCES.get(re.sub(r"[-_ ]", "", self.resource or "").lower())
        is_prefix = _PREFIX.get((self.pattern or "").lower())
        permission = (self.permission or "allow").lower()
        name = self.name or (CLUSTER_NAME if resource == "cluster" else None)
        if resource is None:
            at.lost("", f"{self.resource or 'nothing'!r} is no kind of thing that access rules are about")
        elif is_prefix is None:
            hint = "Name the topics one by one, or a prefix that ends with the separator of namespaces."
            at.lost("", f"a pattern of the kind {self.pattern!r} has no place here", hint)
        elif permission not in {"allow", "deny"}:
            at.lost("", f"{self.permission!r} is neither allow nor deny")
        elif not name or not self.principal:
            at.lost("", f"it names no {'principal' if name else 'resource'}")
        else:
            for operation in self._known(at):
                rule = FoundRule(
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

    def _known(self, at: Fields) -> Iterable[str]:
        for said in self.operations:
            word = operation_word(said)
            if word is None:
                at.lost("", f"{said!r} is no operation: there are {one_of(_OPERATIONS)}")
            else:
                yield word


def take_rule_of_resource(
    entry: Fields, principal: str, *, name: str, operations: tuple[str, ...] = ("operations",), cluster: str = ""
) -> None:
    """Take a rule that says what it is about in a `resource` of its own; `name` and `operations` are its fields."""
    resource = entry.inside("resource")
    if resource is None:
        entry.lost("", "it names no resource")
        return
    SaidRule(
        resource=resource.text("type"),
        name=resource.text(name),
        pattern=resource.text("patternType"),
        principal=principal,
        permission=entry.text("type"),
        host=entry.text("host"),
        operations=[word for field in operations for word in entry.texts(field)],
        cluster=cluster,
    ).add_to(entry)
    resource.rest()
    entry.rest()


def operation_word(text: str) -> str | None:
    """Return our word for an operation: `DescribeConfigs`, `DESCRIBE_CONFIGS` → `describe-configs`."""
    word = (text if text.isupper() else _HUMP.sub("-", text)).replace("_", "-").lower()
    return word if word in _OPERATIONS else None
