"""Every command: its name, the module that holds it, one line of help. `--help` reads nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Entry:
    """One command or group. `module` has an `app`; a group has `entries` in its place."""

    name: str
    summary: str
    section: str
    module: str = ""
    entries: tuple[Entry, ...] = ()
    alias: str | None = None
    """What other tools call it; both names do."""


def _command(section: str, name: str, summary: str, module: str | None = None, alias: str | None = None) -> Entry:
    return Entry(name, summary, section, module=f"reconciler.cli.commands.{module or name}", alias=alias)


_NAMESPACE: Final = (
    _command("Commands", "list", "namespaces, and how many topics each holds", "namespace_list"),
    _command("Commands", "create", "make one now; for emergencies", "namespace_create"),
    _command("Commands", "move", "move topics to another namespace now", "namespace_move"),
    _command("Commands", "delete", "delete one with its topics now", "namespace_delete"),
)

_TOPIC: Final = (
    _command("Commands", "list", "topics; with --sizes what they hold", "topic_list"),
    _command(
        "Commands", "describe", "one topic: partitions, offsets, configs and where they come from", "topic_describe"
    ),
    _command("Commands", "storage", "what topics take, on local disk and in object storage", "topic_storage"),
    _command("Commands", "alter", "change configs now; for emergencies", "topic_alter"),
    _command("Commands", "produce", "write records from a file or standard input", "topic_produce"),
    _command("Commands", "consume", "read records to a file or standard output", "topic_consume"),
)

_CLUSTER: Final = (
    _command("Commands", "check", "every register and object looked at; --repair where it is safe", "cluster_check"),
)

_GROUP: Final = (
    _command("Commands", "list", "consumer groups", "group_list"),
    _command("Commands", "describe", "one group: committed offsets, lag, whether it is reading", "group_describe"),
    _command("Commands", "reset", "set where a group goes on reading", "group_reset"),
    _command("Commands", "delete", "forget a group, or what it has of one topic", "group_delete"),
)

_MOUNT: Final = (
    _command("Commands", "list", "what can be mounted, is mounted or on its way, and whose it is", "mount_list"),
    _command("Commands", "status", "mounts and unmounts under way: how far, what they wait for", "mount_status"),
    _command("Commands", "cancel", "stop one that has begun, and undo what it did", "mount_cancel"),
    _command("Commands", "delete", "drop the record of one that is planned or cancelled", "mount_delete"),
    _command("Commands", "release", "take a topic from an owner that will not come back", "mount_release"),
)

_MIRROR: Final = (
    _command("Commands", "create", "make mirrors over a link now; for emergencies", "mirror_create"),
    _command("Commands", "list", "mirrors, their states and lags", "mirror_list"),
    _command("Commands", "describe", "mirrors by partition, what is wrong, what may be asked", "mirror_describe"),
    _command("Commands", "errors", "what is wrong with links, tasks, mirrors and transitions", "mirror_errors"),
    _command("Commands", "pause", "stop fetching", "mirror_pause"),
    _command("Commands", "resume", "go on fetching", "mirror_resume"),
    _command("Commands", "promote", "make topics of mirrors, without loss; for migrations", "mirror_promote"),
    _command("Commands", "failover", "make topics of mirrors at once; for disasters", "mirror_failover"),
    _command("Commands", "reverse", "let mirror and source change roles, without loss", "mirror_reverse"),
    _command("Commands", "restore", "make the original source a mirror of what was its own", "mirror_restore"),
)

_STATE: Final = (
    _command("Commands", "list", "what this workspace owns", "state_list"),
    _command("Commands", "show", "one resource as it was last applied", "state_show"),
    _command("Commands", "history", "the state's snapshots, newest first", "state_history"),
    _command("Commands", "diff", "what two states say differently", "state_diff"),
    _command("Commands", "rollback-plan", "a plan back to what was applied as an earlier state", "state_rollback_plan"),
    _command("Commands", "mv", "record a resource under another address", "state_mv", "move"),
    _command("Commands", "rm", "stop owning, touch nothing", "state_rm", "forget"),
    _command("Commands", "unlock", "take the lease from a run that died", "state_unlock", "force-unlock"),
    _command("Commands", "repair", "make a lost or damaged lockfile anew", "state_repair"),
)

COMMANDS: Final = (
    _command("Write", "init", "a workspace to start from"),
    _command("Write", "validate", "check the manifests, without any cluster"),
    _command("Write", "fmt", "put manifests into canonical form"),
    _command("Write", "export", "manifests of what a cluster has, or of what can be recovered"),
    _command("Write", "import", "manifests of what other tools' files say", "import_from"),
    _command("Write", "schema", "JSON Schema of manifests and outputs, for editors"),
    _command("Change", "plan", "show what would change; changes nothing"),
    _command("Change", "apply", "plan, confirm, do"),
    _command("Change", "destroy", "remove what this workspace created"),
    _command("Change", "run", "the data pipeline: mirrors, uploads, retention, compaction, sweep"),
    _command("Look", "drift", "where clusters have moved away from the files"),
    _command("Look", "show", "what is desired, recorded and observed; or a saved plan"),
    _command("Look", "graph", "clusters and links, a plan's order or a state machine"),
    _command("Look", "explain", "where each value comes from, and why an action is planned"),
    _command("Look", "verify", "compare two topic logs record for record"),
    Entry("cluster", "look after embedded clusters", "Clusters", entries=_CLUSTER),
    Entry("namespace", "look at namespaces, make, move and delete them", "Clusters", entries=_NAMESPACE),
    Entry("topic", "look at topics, feed and read them", "Clusters", entries=_TOPIC),
    Entry("mirror", "look at mirrors, and act on them in an emergency", "Clusters", entries=_MIRROR),
    Entry("mount", "look at mountable topics, stop what is on its way", "Clusters", entries=_MOUNT),
    Entry("group", "look at consumer groups, set them back", "Clusters", entries=_GROUP),
    Entry("state", "look at the state, go back to an earlier one, mend it", "Clusters", entries=_STATE),
)
