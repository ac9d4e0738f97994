"""`link create`, `alter`, `pause`, `resume` and `delete`, which do not use the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from reconciler.errors import ReconcilerError, UsageError, UserError
from reconciler.manifests.models import translate_validation_error
from reconciler.manifests.positions import replace_scalar_texts
from reconciler.manifests.yaml_documents import parse_yaml
from reconciler.operations.mirrors.link_views import check_link_arguments, select_links
from reconciler.operations.steps.orders import OrderResult, OrderRun
from reconciler.planning.orders import CreateLinkOrder, LinkOrder
from reconciler.resources.address import Address, cluster_of, full_name_of
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec
from reconciler.runtime.text import find_similar, format_suggestion

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import EmergencyRun
    from reconciler.planning.plan import Plan


_ANY: Final = "*"
_FIELDS: Final = "See the fields with: reconciler schema"
_ONLY_IN_FILES: Final = {
    "mirrorTopics": "Create mirrors over an existing link: reconciler mirror create ADDR --link NAME",
    "movedFrom": "Declare it in the files.",
}


def create_links(
    emergency: EmergencyRun, texts: Sequence[str], fields: Mapping[str, object], *, is_dry_run: bool = False
) -> OrderResult:
    """Create links, bidirectional ones on both clusters. `fields` are those of a manifest's spec."""
    check_link_arguments(texts)
    for text in texts:
        if _ANY in text:
            raise UsageError(f"{text!r} is a pattern, not the address of a link", hint="Write it as link/east/twin.")
    orders: dict[Address, LinkOrder] = {}
    refused: dict[Address, ReconcilerError] = {}
    for address in map(Address, texts):
        try:
            orders[address] = CreateLinkOrder(_build_link(address, fields))
        except UserError as error:
            refused[address] = error
    return OrderRun(
        emergency=emergency,
        site=emergency.open_site(),
        noun="links",
        orders=orders,
        refused=refused,
        is_dry_run=is_dry_run,
        names_parts=True,
    ).execute_orders()


def order_links(
    emergency: EmergencyRun,
    texts: Sequence[str],
    order: Callable[[Address, bool], LinkOrder],
    *,
    confirm: Callable[[Plan], bool] | None = None,
    is_dry_run: bool = False,
) -> OrderResult:
    """Apply a change to each link that the arguments name.

    `order` builds it from the address, and whether that was typed in full.
    """
    check_link_arguments(texts)
    site = emergency.open_site()
    chosen = select_links(site, texts, partial(emergency.read_recorded_ids, site))
    return OrderRun(
        emergency=emergency,
        site=site,
        noun="links",
        orders={address: order(address, is_named) for address, is_named in chosen.items()},
        confirm=confirm,
        is_dry_run=is_dry_run,
    ).execute_orders()


def parse_link_fields(fields: Mapping[str, str]) -> dict[str, object]:
    """Parse the YAML values of link fields."""
    values: dict[str, object] = {}
    for key, text in fields.items():
        if key in _ONLY_IN_FILES:
            raise UsageError(f"--set {key}: a command changes the link alone", hint=_ONLY_IN_FILES[key])
        parsed = parse_yaml(text.encode(), f"--set {key}")
        if parsed.problems or len(parsed.documents) != 1:
            why = parsed.problems[0].message if parsed.problems else "it is not one value"
            hint = "Write the value as YAML, for example --set retryTimeout=10m."
            raise UsageError(f"--set {key}={text}: {why}", hint=hint)
        values[key] = parsed.documents[0].as_written
    return values


def parse_link_changes(fields: Mapping[str, str], resets: Sequence[str]) -> dict[str, object]:
    """Parse new values of link fields. `None` resets a field."""
    for key in resets:
        _check_field_known(key)
    content = {"source": "any", **parse_link_fields(fields)}
    try:
        plain = MirrorLinkSpec.model_validate(replace_scalar_texts(content)).to_json()
    except ValidationError as error:
        raise _invalid_link_error(error, MirrorLinkSpec, content) from error
    return {**{key: plain.get(key) for key in fields}, **dict.fromkeys(resets)}


def _check_field_known(key: str) -> None:
    known = [field.alias or name for name, field in MirrorLinkSpec.model_fields.items()]
    if key in {*_ONLY_IN_FILES, "source"}:
        hint = _ONLY_IN_FILES.get(key, "A link to another cluster is another link: reconciler link create")
        raise UsageError(f"--delete {key}: no command resets it", hint=hint)
    if key not in known:
        raise UserError(
            f"--delete {key}: it is not a field here",
            hint=format_suggestion(find_similar(key, known), otherwise=_FIELDS),
        )


def _build_link(address: Address, fields: Mapping[str, object]) -> MirrorLink:
    content = {
        "apiVersion": "reconciler/v1",
        "kind": "MirrorLink",
        "metadata": {"name": full_name_of(address), "cluster": cluster_of(address)},
        "spec": dict(fields),
    }
    try:
        return MirrorLink.model_validate(replace_scalar_texts(content))
    except ValidationError as error:
        raise _invalid_link_error(error, MirrorLink, content, f"{address}: ") from error


def _invalid_link_error(
    error: ValidationError, model: type[MirrorLink | MirrorLinkSpec], content: object, subject: str = ""
) -> UserError:
    first = next(iter(translate_validation_error(error, model, content)))
    place = ".".join(str(part) for part in first.at if part != "spec")
    message = f"{place}: {first.message}" if place else first.message
    return UserError(message, hint=first.hint or _FIELDS, subject=subject)
