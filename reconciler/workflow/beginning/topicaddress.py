"""Addresses of topics as people type them, and who answers for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UsageError
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of

if TYPE_CHECKING:
    from reconciler.providers.base import Provider
    from reconciler.workflow.beginning.opening import Site


def topic_address(text: str) -> Address:
    """Return the topic that was named; mirrors and mounted topics are read as topics too.

    Raises:
        UsageError: It names no topic.
    """
    given = Address(text)
    if kind_of(given) not in {"topic", "mirror", "mounting"} or text.count("/") < 2 or not full_name_of(given):  # noqa: PLR2004 - kind/cluster/name
        raise UsageError(f"{text!r} is not the address of a topic", hint="Write it as topic/west/shop:eu:orders.")
    return address_of("topic", cluster_of(given) or "", full_name_of(given))


def provider_of(site: Site, address: Address) -> Provider:
    """Return who answers for an address.

    Raises:
        UserError: Its cluster is not in this workspace.
    """
    return site.providers[cluster_of(address) or ""]
