"""`mirror create`, `delete`, `pause`, `promote`, `failover` and the other verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import UsageError
from reconciler.operations.mirrors.mirror_selection import MirrorChoice, check_typed, chosen
from reconciler.operations.mirrors.mirror_views import mirrors_named
from reconciler.operations.steps.orders import OrderResult, OrderRun
from reconciler.operations.steps.recorded import check_state
from reconciler.operations.steps.workspace import check_allowance
from reconciler.planning.orders import CreateMirrorOrder, DeleteMirrorOrder, RoleOrder

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import Emergency
    from reconciler.planning.orders import RoleVerb
    from reconciler.planning.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOptions:
    """Options of verbs about roles."""

    timeout_ms: int | None = None
    """For a promotion: how long the lag may not shrink; `None`: as the link says."""
    keeps_diverged: bool = False
    """For a restore: keep the records that only original sources have."""
    is_dry_run: bool = False


_NONE = RoleOptions()


def order_roles(
    emergency: Emergency,
    verb: RoleVerb,
    choice: MirrorChoice,
    *,
    confirm: Callable[[Plan], bool] | None = None,
    options: RoleOptions = _NONE,
) -> OrderResult:
    """Apply a verb to mirrors; one that fails does not stop the others.

    Raises:
        UsageError: An address is none of a mirror.
        UserError: It was not confirmed, or a pattern matches nothing.
        LeaseError: Someone else is applying.
    """
    check_typed(choice)
    site = emergency.site()
    if not emergency.no_state:
        check_state(site)
    which = chosen(site, choice, verb, lambda: emergency.recorded(site))
    orders = {
        mirror.address: RoleOrder(
            mirror=mirror.address,
            verb=verb,
            is_named=mirror not in which.found,
            links=tuple(sorted(which.over.get(mirror, ()))),
            timeout_ms=options.timeout_ms,
            keeps_diverged=options.keeps_diverged,
        )
        for mirror in which.names
    }
    return OrderRun(
        emergency=emergency,
        site=site,
        noun="mirrors",
        orders=orders,
        confirm=confirm,
        is_dry_run=options.is_dry_run,
    ).carry_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMirrors:
    """What new mirrors have in common."""

    link: str
    source: str | None = None
    """Full name of the source; `None`: that of the mirror without the prefix of the link."""
    configs: Mapping[str, str]


def create_mirrors(
    emergency: Emergency, addresses: Sequence[str], new: NewMirrors, *, is_dry_run: bool = False
) -> OrderResult:
    """Create mirrors over a link; no apply deletes them while no file names them.

    Raises:
        UsageError: An address is none of a mirror, or one source is named for several.
        LeaseError: Someone else is applying.
    """
    names = [named.address for named in mirrors_named(addresses)]
    if new.source is not None and len(names) > 1:
        raise UsageError("--source-topic is of one mirror", hint="Make them one after the other.")
    return OrderRun(
        emergency=emergency,
        site=emergency.site(),
        noun="mirrors",
        orders={
            mirror: CreateMirrorOrder(mirror=mirror, link=new.link, source=new.source, configs=new.configs)
            for mirror in names
        },
        is_dry_run=is_dry_run,
    ).carry_out()


def delete_mirrors(
    emergency: Emergency,
    addresses: Sequence[str],
    *,
    confirm: Callable[[Plan], bool],
    allow: Sequence[str] = (),
    is_dry_run: bool = False,
) -> OrderResult:
    """Delete mirrors with their records; the next plan creates again what the files name.

    `allow`: `delete:ADDR` overrides deletionProtection.

    Raises:
        UsageError: An address is a pattern, or none of a mirror.
        UserError: It was not confirmed, or another cluster answers.
        LeaseError: Someone else is applying.
    """
    for address in addresses:
        if "*" in address:
            message = f"{address} may name more than one mirror, and a delete takes no patterns"
            raise UsageError(message, hint="Name each mirror. List them with: reconciler mirror list")
    return OrderRun(
        emergency=emergency,
        site=emergency.site(),
        noun="mirrors",
        orders={mirror: DeleteMirrorOrder(mirror) for mirror in (each.address for each in mirrors_named(addresses))},
        allow=tuple(map(check_allowance, allow)),
        confirm=confirm,
        is_dry_run=is_dry_run,
    ).carry_out()
