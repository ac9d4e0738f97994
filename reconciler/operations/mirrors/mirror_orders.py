"""`mirror create`, `delete` and the verbs that change mirror roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from reconciler.errors import UsageError
from reconciler.operations.mirrors.mirror_selection import MirrorChoice, check_mirror_arguments, choose_mirrors
from reconciler.operations.mirrors.mirror_views import parse_mirror_addresses
from reconciler.operations.steps.orders import OrderResult, OrderRun
from reconciler.operations.steps.recorded import require_state
from reconciler.operations.steps.workspace import check_allowance
from reconciler.planning.orders import CreateMirrorOrder, DeleteMirrorOrder, RoleOrder
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import EmergencyRun
    from reconciler.planning.orders import RoleVerb
    from reconciler.planning.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOptions:
    """Options of the verbs that change roles."""

    timeout_ms: int | None = None
    """Time in which a promotion's lag must shrink; `None` uses the link's."""
    keeps_diverged: bool = False
    """Whether a restore copies diverged records to a separate topic."""
    is_dry_run: bool = False


_NONE = RoleOptions()


def change_roles(
    emergency: EmergencyRun,
    verb: RoleVerb,
    choice: MirrorChoice,
    *,
    confirm: Callable[[Plan], bool] | None = None,
    options: RoleOptions = _NONE,
) -> OrderResult:
    """Apply a verb to mirrors. A failed mirror does not stop the others."""
    check_mirror_arguments(choice)
    site = emergency.open_site()
    if not emergency.no_state:
        require_state(site)
    selected = choose_mirrors(site, choice, verb, lambda: emergency.read_recorded_ids(site))
    orders = {
        mirror.address: RoleOrder(
            mirror=mirror.address,
            verb=verb,
            is_named=mirror not in selected.by_pattern,
            links=tuple(sorted(selected.restore_links.get(mirror, ()))),
            timeout_ms=options.timeout_ms,
            keeps_diverged=options.keeps_diverged,
        )
        for mirror in selected.names
    }
    return OrderRun(
        emergency=emergency,
        site=site,
        noun="mirrors",
        orders=orders,
        confirm=confirm,
        is_dry_run=options.is_dry_run,
    ).execute_orders()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMirrorOptions:
    """Settings of new mirrors."""

    link: str
    source: str | None = None
    """Full name of the source; `None` means the mirror's name without the link's prefix."""
    configs: Mapping[str, str]


def create_mirrors(
    emergency: EmergencyRun, addresses: Sequence[str], new: NewMirrorOptions, *, is_dry_run: bool = False
) -> OrderResult:
    """Create mirrors over a link. Apply does not delete them, although undeclared."""
    names = [named.address for named in parse_mirror_addresses(addresses)]
    if new.source is not None and len(names) > 1:
        raise UsageError("--source-topic takes one mirror", hint="Create them one after the other.")
    return OrderRun(
        emergency=emergency,
        site=emergency.open_site(),
        noun="mirrors",
        orders={
            mirror: CreateMirrorOrder(mirror=mirror, link=new.link, source=new.source, configs=new.configs)
            for mirror in names
        },
        is_dry_run=is_dry_run,
    ).execute_orders()


def delete_mirrors(
    emergency: EmergencyRun,
    addresses: Sequence[str],
    *,
    confirm: Callable[[Plan], bool],
    allow: Sequence[str] = (),
    is_dry_run: bool = False,
) -> OrderResult:
    """Delete mirrors and their records. The next plan recreates declared ones.

    `delete:ADDR` in `allow` overrides deletionProtection.
    """
    for address in addresses:
        if "*" in address:
            message = f"{address} may name more than one mirror, and a delete takes no patterns"
            raise UsageError(message, hint="Name each mirror. List them with: reconciler mirror list")
    return OrderRun(
        emergency=emergency,
        site=emergency.open_site(),
        noun="mirrors",
        orders={
            mirror: DeleteMirrorOrder(mirror)
            for mirror in (named.address for named in parse_mirror_addresses(addresses))
        },
        allow=tuple(map(check_allowance, allow)),
        confirm=confirm,
        is_dry_run=is_dry_run,
    ).execute_orders()
