"""`link create`, `alter`, `pause`, `resume` and `delete`: for emergencies, without the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from reconciler.errors import ReconcilerError, UsageError, UserError
from reconciler.manifests.models import complaints_of
from reconciler.manifests.positions import values_of
from reconciler.manifests.yaml_documents import parse
from reconciler.operations.mirrors.link_views import check_links_typed, chosen_links
from reconciler.operations.mirrors.mirror_selection import warn_of_absent
from reconciler.operations.steps.orders import OrderResult, OrderRun
from reconciler.planning.orders import AlterLinkOrder, CreateLinkOrder, DeleteLinkOrder, LinkOrder, PauseLinkOrder
from reconciler.resources.address import Address, cluster_of, full_name_of
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec
from reconciler.runtime.text import did_you_mean, nearest

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import Emergency
    from reconciler.operations.steps.workspace import Site
    from reconciler.planning.plan import Plan


_ANY: Final = "*"
_FIELDS: Final = "See the fields with: reconciler schema"
_OF_FILES: Final = {
    "mirrorTopics": "Create mirrors over an existing link: reconciler mirror create ADDR --link NAME",
    "movedFrom": "Declare it in the files: it says what the state calls the link.",
}
"""Fields that no command changes, and what to do instead."""


def create_links(
    emergency: Emergency, texts: Sequence[str], fields: Mapping[str, object], *, is_dry_run: bool = False
) -> OrderResult:
    """Create links and, of those that have two, the other halves; `fields` are those of a spec, as manifests name them.

    Raises:
        UsageError: A text is no address of a link.
        LeaseError: Someone else is applying.
    """
    check_links_typed(texts)
    for text in texts:
        if _ANY in text:
            raise UsageError(f"{text!r} is a pattern, and no link to be made", hint="Write it as link/east/twin.")
    orders: dict[Address, LinkOrder] = {}
    refused: dict[Address, ReconcilerError] = {}
    for address in map(Address, texts):
        try:
            orders[address] = CreateLinkOrder(_link(address, fields))
        except UserError as error:
            refused[address] = error
    return _carry_out(emergency, emergency.open(), "link create", orders, refused=refused, is_dry_run=is_dry_run)


def alter_links(
    emergency: Emergency,
    texts: Sequence[str],
    fields: Mapping[str, object],
    resets: Sequence[str],
    *,
    is_dry_run: bool = False,
) -> OrderResult:
    """Give fields of links values, and reset others; the state keeps what was applied.

    Raises:
        UsageError: A field is not one that a command changes.
        UserError: A value is not one of its field, or a pattern matches nothing.
        LeaseError: Someone else is applying.
    """
    for key in resets:
        _check_known(key)
    changes = {**_canonical(fields), **dict.fromkeys(resets)}
    site, chosen = _chosen(emergency, texts)
    orders = {address: AlterLinkOrder(address, changes) for address in chosen}
    return _carry_out(emergency, site, "link alter", orders, is_dry_run=is_dry_run)


def pause_links(
    emergency: Emergency, texts: Sequence[str], *, is_paused: bool, is_dry_run: bool = False
) -> OrderResult:
    """Pause links or resume them.

    Raises:
        UsageError: A text is no address of a link.
        UserError: A pattern matches nothing.
        LeaseError: Someone else is applying.
    """
    site, chosen = _chosen(emergency, texts)
    orders = {address: PauseLinkOrder(address, is_paused, is_named) for address, is_named in chosen.items()}
    command = "link pause" if is_paused else "link resume"
    return _carry_out(emergency, site, command, orders, is_dry_run=is_dry_run)


def delete_links(
    emergency: Emergency,
    texts: Sequence[str],
    *,
    confirm: Callable[[Plan], bool],
    is_forced: bool = False,
    is_dry_run: bool = False,
) -> OrderResult:
    """Delete links; `is_forced`: fail over mirrors that are not stopped first, and what they lack is lost.

    Raises:
        UsageError: A text is no address of a link.
        UserError: It was not confirmed, or a pattern matches nothing.
        LeaseError: Someone else is applying.
    """
    site, chosen = _chosen(emergency, texts)
    orders = {address: DeleteLinkOrder(address, is_forced) for address in chosen}
    return _carry_out(emergency, site, "link delete", orders, confirm=confirm, is_dry_run=is_dry_run)


def _carry_out(
    emergency: Emergency, site: Site, command: str, orders: Mapping[Address, LinkOrder], **more: Any
) -> OrderResult:
    run = OrderRun(emergency=emergency, site=site, command=command, noun="links", orders=orders, **more)
    return run.carry_out()


def _chosen(emergency: Emergency, texts: Sequence[str]) -> tuple[Site, Mapping[Address, bool]]:
    """Return the links that are meant, each with whether an address names it, and where they are."""
    check_links_typed(texts)
    site = emergency.open()

    def warn(absent: Iterable[str]) -> None:
        warn_of_absent(site, absent, partial(emergency.clusters, site))

    return site, chosen_links(site, texts, warn)


# Fields of a link as they are typed.


def typed_fields(fields: Mapping[str, str]) -> dict[str, object]:
    """Return fields of a link whose values are typed as YAML.

    Raises:
        UsageError: A value is not YAML, or a field is not one that a command changes.
    """
    values: dict[str, object] = {}
    for key, text in fields.items():
        if key in _OF_FILES:
            raise UsageError(f"--set {key}: a command changes the link alone", hint=_OF_FILES[key])
        parsed = parse(text.encode(), f"--set {key}")
        if parsed.problems or len(parsed.documents) != 1:
            why = parsed.problems[0].message if parsed.problems else "it is not one value"
            hint = "Write the value as YAML, for example --set prefix=west."
            raise UsageError(f"--set {key}={text}: {why}", hint=hint)
        values[key] = parsed.documents[0].as_written
    return values


def _check_known(key: str) -> None:
    known = [field.alias or name for name, field in MirrorLinkSpec.model_fields.items()]
    if key in {*_OF_FILES, "source"}:
        hint = _OF_FILES.get(key, "A link to another cluster is another link: reconciler link create")
        raise UsageError(f"--delete {key}: no command resets it", hint=hint)
    if key not in known:
        raise UserError(
            f"--delete {key}: it is not a field here", hint=did_you_mean(nearest(key, known), otherwise=_FIELDS)
        )


def _canonical(fields: Mapping[str, object]) -> dict[str, object]:
    """Return values of fields as a cluster keeps them; `None`: the field is reset.

    Raises:
        UserError: A link has no such field, or not with that value.
    """
    content = {"source": "any", **fields}
    try:
        plain = MirrorLinkSpec.model_validate(values_of(content)).to_json()
    except ValidationError as error:
        raise _refusal("", error, MirrorLinkSpec, content) from error
    return {key: plain.get(key) for key in fields}


def _link(address: Address, fields: Mapping[str, object]) -> MirrorLink:
    """Return the link of an address.

    Raises:
        UserError: A link has no such name or field, or not with that value.
    """
    content = {
        "apiVersion": "reconciler/v1",
        "kind": "MirrorLink",
        "metadata": {"name": full_name_of(address), "cluster": cluster_of(address)},
        "spec": dict(fields),
    }
    try:
        return MirrorLink.model_validate(values_of(content))
    except ValidationError as error:
        raise _refusal(f"{address}: ", error, MirrorLink, content) from error


def _refusal(what: str, error: ValidationError, model: type[MirrorLink | MirrorLinkSpec], content: object) -> UserError:
    first = next(iter(complaints_of(error, model, content)))
    place = ".".join(str(part) for part in first.at if part != "spec")
    message = f"{what}{place}: {first.message}" if place else f"{what}{first.message}"
    return UserError(message, hint=first.hint or _FIELDS)
