"""`reconciler topic storage`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from reconciler.cli.bundles import bundled
from reconciler.cli.console import err
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict
from reconciler.cli.render.amounts import count_text
from reconciler.cli.render.lines import line


@bundled
def command(
    files: Files,
    place: Place,
    addresses: Annotated[
        list[str] | None,
        Argument(
            metavar="ADDRESS", help="For example topic/west/shop:eu:orders, or 'topic/west/*'.", show_default=False
        ),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Show what topics take, tier by tier: one topic by partition, several or all of them by their sums."""
    given = addresses or []
    if len(given) == 1 and "*" not in given[0]:
        from reconciler.cli.documents.storages import StorageDocument
        from reconciler.cli.render.storage_text import storage_text
        from reconciler.workflow.storage import topic_storage

        topic = topic_storage(place.invocation(), files.select(), given[0])
        present(form, lambda: storage_text(topic), lambda: StorageDocument.of(topic))
        raise_verdict(topic.problem)
        return
    from reconciler.cli.documents.storages import StoragesDocument
    from reconciler.cli.render.storage_text import storages_text
    from reconciler.workflow.storage import topic_storages

    found = topic_storages(place.invocation(), files.select(), given)
    present(form, lambda: storages_text(found), lambda: StoragesDocument.of(found))
    if found.unmeasured:
        topics = f"{count_text(found.unmeasured)} of {count_text(found.unmeasured + len(found.topics))} topics"
        err().show([line(f"Not measured: {topics}, beyond 10,000 partitions a cluster. Name fewer by a pattern")])
    raise_verdict(next((topic.problem for topic in found.topics if topic.problem is not None), None))
