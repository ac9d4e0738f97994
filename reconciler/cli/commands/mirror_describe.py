"""`reconciler mirror describe`."""

from __future__ import annotations

from reconciler.cli.bundles import bundled
from reconciler.cli.linking import Addresses
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present
from reconciler.cli.reaching import ByState


@bundled
def command(
    files: Files,
    by_state: ByState,
    place: Place,
    addresses: Addresses,
    form: TextOrJson = "text",
) -> None:
    """Show mirrors: state, lag and last fetched offset of each partition, what is wrong, what may be asked for."""
    from reconciler.cli.documents.mirrors import MirrorDescriptionDocument
    from reconciler.cli.render.mirrors_text import described_text
    from reconciler.workflow.linking.commands.showing import describe_mirrors

    rows = describe_mirrors(by_state.reach(files, place), addresses)
    present(form, lambda: described_text(rows), lambda: MirrorDescriptionDocument.of(rows))
