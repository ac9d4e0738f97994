"""One field of one address, written as the cluster has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from reconciler.manifests.editing.scalartext import yaml_text
from reconciler.manifests.editing.textedits import UneditableError
from reconciler.manifests.origins import explain_origin
from reconciler.manifests.problems import path_text
from reconciler.planning.canonical import plain
from reconciler.planning.fields import CONFIGS, PROPERTIES
from reconciler.resources.aclpaths import ACLS, rule_at, rule_path
from reconciler.resources.acls import NamespaceAcl, TopicAcl
from reconciler.resources.address import kind_of
from reconciler.workflow.accepting.places import ODD_LAYOUT, ByHandError
from reconciler.workflow.accepting.values import written_config, written_field, written_property

if TYPE_CHECKING:
    from reconciler.manifests.findings import Place
    from reconciler.manifests.loading import Loaded
    from reconciler.manifests.positions import Path
    from reconciler.planning.actions import Value
    from reconciler.resources.address import Address
    from reconciler.workflow.accepting.places import Manifests, Spot

_RULES: Path = ("spec", "acls")


def accept_field(manifests: Manifests, address: Address, path: str, observed: Value) -> None:
    """Write what was observed; a field that the cluster has not is taken out.

    Raises:
        ElsewhereError: It is said elsewhere.
        ByHandError: Its document is laid out so that no patch is safe.
    """
    if path.startswith(ACLS):
        spot, change = manifests.spot(address, _RULES), _accept_rule
    else:
        spot, change = manifests.spot(address, place_of(address, path)), _accept_value
    try:
        change(spot, address, path, observed)
    except UneditableError as error:
        raise ByHandError(spot.place, ODD_LAYOUT) from error


def field_by_hand(loaded: Loaded, address: Address, path: str, observed: Value, place: Place) -> str:
    """Return what to write where, for whoever does by hand what no patch says: file, line, field, value."""
    where = _RULES if path.startswith(ACLS) else place_of(address, path)
    line = explain_origin(loaded, address).get(path_text(where), str(place))
    if observed is None:
        return f"{line} {path}: take it out"
    if path.startswith(ACLS):
        return f"{line} {path_text(_RULES)}: {yaml_text(written_rule(path, observed))}"
    return f"{line} {path_text(where)}: {yaml_text(_written(path, observed, None))}"


def place_of(address: Address, path: str) -> Path:
    """Return where a manifest says a field; an entry of a link has no `spec`, and keys of configs may hold dots."""
    above: Path = () if kind_of(address) == "mirror" else ("spec",)
    for group in (CONFIGS, PROPERTIES):
        if path.startswith(group):
            return (*above, group.removesuffix("."), path.removeprefix(group))
    return (*above, *path.split("."))


def _accept_value(spot: Spot, address: Address, path: str, observed: Value) -> None:
    place = place_of(address, path)
    like = spot.said(place)
    whole, number = (*spot.within, *place), spot.place.number
    if observed is not None:
        spot.file.set(number, whole, _written(path, observed, like))
    elif like is not None:
        spot.file.remove(number, whole)


def _written(path: str, observed: Value, like: Any) -> Any:
    if path.startswith(CONFIGS):
        return written_config(path.removeprefix(CONFIGS), str(observed), like)
    if path.startswith(PROPERTIES):
        return written_property(str(observed), like)
    return written_field(path, observed, like)


def _accept_rule(spot: Spot, address: Address, path: str, observed: Value) -> None:
    """Keep one rule of this path, with the operations observed; what its author wrote twice is one rule."""
    places = [position for position, rule in enumerate(spot.said(_RULES) or ()) if _path_of(address, rule) == path]
    number = spot.place.number
    for position in reversed(places if observed is None else places[1:]):
        spot.file.remove(number, (*_RULES, position))
    if observed is None:
        return
    if places:
        spot.file.set(number, (*_RULES, places[0], "operations"), plain(observed))
    else:
        spot.file.append(number, _RULES, written_rule(path, observed))


def _path_of(address: Address, rule: Any) -> str | None:
    model = TopicAcl if kind_of(address) == "topic" else NamespaceAcl
    try:
        return rule_path(model.model_validate(rule))
    except ValidationError:
        return None


def written_rule(path: str, operations: Value) -> dict[str, Any]:
    """Return a rule as it is written: without what holds anyway."""
    rule = rule_at(path, operations if isinstance(operations, tuple | list) else ())
    shown = {name: NamespaceAcl.model_fields[name].default for name in ("permission", "host", "resources", "names")}
    said = rule.to_json()
    return {name: value for name, value in said.items() if name not in shown or value != plain(shown[name])}
