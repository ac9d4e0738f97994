"""Print errors, choose exit codes, and explain frequent errors."""

from __future__ import annotations

import re
import sys
import traceback
from textwrap import fill
from typing import Final, NamedTuple

from typer import TyperException

from reconciler.cli.console import Screen, discard_output, open_stderr
from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, make_line
from reconciler.errors import BrokenInvariantError, DriftError, MissingRecordsError, PendingError, ReconcilerError
from reconciler.runtime.text import escape_invisible, to_one_line

USAGE: Final = 64
INTERRUPTED: Final = 130
_MAX_TRACEBACK_LINE: Final = 2_000
_BUG_HINT: Final = (
    "This is our bug. Please report it with the command and what `--verbose` adds; apply again when it is mended"
)


def report_error(error: BaseException, *, is_verbose: bool) -> int:
    """Print an error and return its exit code."""
    screen = open_stderr()
    match error:
        case ReconcilerError():
            _print_own_error(screen, error)
            code = error.exit_code
        case TyperException():
            code = _print_usage_error(screen, error)
        case KeyboardInterrupt():
            screen.show([EMPTY, make_line("Interrupted: nothing was started.")])
            code = INTERRUPTED
        case BrokenPipeError():
            discard_output(sys.stdout)
            code = 0
        case _:
            code, message, hint = describe_unexpected_error(error)
            _print_error(screen, "Error", message, hint)
    if is_verbose and not isinstance(error, TyperException | KeyboardInterrupt):
        lines = "".join(traceback.format_exception(error)).splitlines()
        screen.write("".join(f"{escape_invisible(text[:_MAX_TRACEBACK_LINE])}\n" for text in lines))
    return code


def describe_unexpected_error(error: BaseException) -> tuple[int, str, str]:
    """Return exit code, message and hint of an unexpected error."""
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED, "Interrupted: nothing was started", "Run the same command again"
        case ImportError() if missing := MissingRecordsError.from_import_error(error):
            return missing.exit_code, missing.message, missing.hint
        case OSError():
            return 1, _format_os_error(error), "Mend that, then run the same command again"
        case MemoryError():
            return 1, "Not enough memory", "Plan less at once with --target, or give the process more memory"
        case RecursionError():
            return 1, "The input is nested too deeply", "Flatten the file that was being read"
        case _:
            return 1, f"Unexpected {type(error).__name__}: {to_one_line(str(error))}", _BUG_HINT


def _print_own_error(screen: Screen, error: ReconcilerError) -> None:
    match error:
        case PendingError():
            return  # The plan already shows the reason.
        case DriftError():
            _print_error(screen, "Drift", error.message, error.hint)
        case BrokenInvariantError():
            _print_error(screen, "Bug", error.message, error.hint)
        case _:
            problems = getattr(error, "problems", ())
            screen.show([row for problem in problems for row in _format_problem(problem, error)])
            heading = error.message.split("\n", 1)[0] if problems else error.message
            _print_error(screen, "Error", heading, error.hint, _find_code(heading))


def _format_problem(problem: object, error: ReconcilerError) -> list[Line]:
    excerpt = getattr(error, "excerpts", {}).get(problem, ())
    return [make_line(str(problem)), *(make_line(Span(source_line, Tone.QUIET)) for source_line in excerpt)]


def find_usage_error(error: BaseException) -> tuple[str, str] | None:
    """Return message and hint of a usage error; `None` for other errors."""
    if not isinstance(error, TyperException) or type(error).__name__ == "NoArgsIsHelpError":
        return None
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "reconciler"
    return _reword_usage(error.format_message()), f"See `{path} --help`"


def _print_usage_error(screen: Screen, error: TyperException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        screen.write(f"{error.format_message()}\n")
        return USAGE
    if (format_warning := find_usage_error(error)) is not None:
        _print_error(screen, "Error", *format_warning)
    return USAGE


_WORDINGS: Final = (
    (re.compile(r"Value error, "), ""),
    (re.compile(r"Input should be greater than or equal to (\S+?)\.?$"), r"it is at least \1"),
    (re.compile(r"Input should be less than or equal to (\S+?)\.?$"), r"it is at most \1"),
    (re.compile(r"Input should be a valid integer.*"), "it is a whole number"),
    (re.compile(r"Input should be a valid number.*"), "it is a number"),
    (re.compile(r"Input should be "), "it is "),
    (re.compile(r"\n\t"), " "),
)


def _reword_usage(message: str) -> str:
    for pattern, replacement in _WORDINGS:
        message = pattern.sub(replacement, message)
    return message.removesuffix(".")


def _format_os_error(error: OSError) -> str:
    reason = to_one_line(error.strerror or str(error)) or type(error).__name__
    return f"{escape_invisible(str(error.filename))}: {reason}" if error.filename else reason


def _print_error(screen: Screen, word: str, message: str, hint: str, code: str | None = None) -> None:
    more = [] if code is None else [make_line("  ", Span("more: ", Tone.QUIET), f"reconciler explain {code}")]
    screen.show(
        [
            _format_first_line(word, message),
            *_format_further_lines(message),
            make_line("  ", Span("hint: ", Tone.QUIET), hint.removesuffix(".")),
            *more,
        ]
    )


def _find_code(message: str) -> str | None:
    explanation = find_explanation(message)
    return None if explanation is None else explanation.code


def _format_first_line(word: str, message: str) -> Line:
    return make_line(Span(f"{word}: ", Tone.DANGER), message.split("\n", 1)[0])


def _format_further_lines(message: str) -> list[Line]:
    return [make_line("  ", part) for part in message.split("\n")[1:]]


class Explanation(NamedTuple):
    """Explanation of a frequent error."""

    code: str
    message: str
    """Regular expression for the error's message."""
    title: str
    text: str


EXPLANATIONS: Final = (
    Explanation(
        "E001",
        r"there is no reconciler\.yaml in",
        "No workspace here",
        "Commands look for `reconciler.yaml` in this folder, then in each folder above it. None was "
        "found. Change into the workspace, name it with `--workspace DIR`, or begin one with `reconciler "
        "init DIR`.",
    ),
    Explanation(
        "E002",
        r"the lease is held by",
        "Another run is applying",
        "One run at a time may change what a workspace declares. The message names the holder of the lease and since "
        "when. A run that is alive renews its lease every 15 seconds. A dead one's ends after "
        "90 seconds, and a waiting apply takes over by itself. `--lock-timeout 10m` waits longer. To "
        "free the lease of a run that you know is dead: `reconciler state unlock RUN`. The next apply checks and "
        "finishes what that run had begun.",
    ),
    Explanation(
        "E003",
        r"the lease was taken over by|the lease could not be renewed|the lease is lost",
        "This run lost its lease",
        "The run could not write its state for a minute, or another run took over. It has stopped, and "
        "nothing that it wrote since then counts. No work is lost: run `reconciler apply` again. It "
        "reads the journal, looks at the clusters, and does what is missing. If this happens often, the "
        "store of the state is slow or out of reach.",
    ),
    Explanation(
        "E004",
        r"no longer matches the plan that was approved",
        "The saved plan is out of date",
        "`apply FILE` plans again and does the same or less. Here it would do more, or something else, "
        "so it did nothing. The lines above name what differs. Save a new plan with `reconciler plan "
        "--out FILE` and have it approved.",
    ),
    Explanation(
        "E005",
        r"\bblocked$",
        "A guard blocks the plan",
        "Deletes of what holds records, data loss, more deletes than `guards.maxDeletes`, and broken "
        "rules are not done unless they are allowed. Nothing at all was done. Either take the change "
        "back, or allow it:\n"
        "  once, on the command line:  --allow VERB:ADDRESS, as the last line of the plan writes it\n"
        "  reviewed and with an end:   guards.allow in reconciler.yaml",
    ),
    Explanation(
        "E006",
        r"is recorded, but nothing is at",
        "A cluster that was there is gone",
        "The state says that this cluster existed, and its folder or bucket is empty now. It is not "
        "created again, for that would hide a loss. Check that the disk is mounted and the location in "
        "the manifest is right. If the cluster is lost permanently: take it and all on it out of the files, "
        "and apply. That only forgets them.",
    ),
    Explanation(
        "E007",
        r"is cluster .*, not |should be .*, but .* answers|cluster .* was .* when it was recorded",
        "Another cluster answers",
        "The cluster at this address has another id than the one that is declared or recorded. Nothing "
        "was changed. Look at `bootstrapServers` or `root`: they may name another environment. If the "
        "cluster was really replaced: take it out of the files, apply, declare it again, apply.",
    ),
    Explanation(
        "E008",
        r"refuses connections|does not answer in time|broker .* cannot be reached|no such host is known here",
        "No broker answers",
        "None of `bootstrapServers` could be reached, or they name brokers that cannot be reached from "
        "here. Test the network: `nc -vz HOST PORT`. Where the first broker answers and others do not, "
        "look at their `advertised.listeners`. To plan without this cluster: `--exclude '*/NAME/*'`.",
    ),
    Explanation(
        "E009",
        r"is a listener with(out)? |closes connections without login",
        "The listener and the manifest disagree",
        "The port speaks TLS or SASL and the manifest does not, or the other way round. Each listener of "
        "a broker has one protocol. Set `security.protocol` of the Cluster to that of the port, or name "
        "another port.",
    ),
    Explanation(
        "E010",
        r"is not trusted:",
        "The broker's certificate is not trusted",
        "The certificate is not signed by an authority that this machine knows, has expired, or names "
        "another host. Give the authority's certificate as `security.caFile` of the Cluster, in PEM. Look at "
        "what the broker shows: `openssl s_client -connect HOST:PORT -showcerts`.",
    ),
    Explanation(
        "E011",
        r"the principal of reconciler may not",
        "The principal lacks a right",
        "The message names the right and the resource. A plan needs DESCRIBE and DESCRIBE_CONFIGS on the "
        "topics and on the cluster. An apply also needs what it does: CREATE, ALTER, ALTER_CONFIGS, "
        "DELETE. A topic that the principal cannot see is never created, changed or forgotten.",
    ),
    Explanation(
        "E012",
        r"does not allow the reference",
        "A secret that manifests may not name",
        "Manifests name secrets by reference, and `spec.references.allow` in `reconciler.yaml` says "
        "which names they may use; by default `env:RECONCILER_*`. In a pull request the list of the base "
        "branch counts, so that a change cannot send your secrets elsewhere. Add the name there first, "
        "on the base branch.",
    ),
    Explanation(
        "E013",
        r"the environment variable .* is not set|the secret .* is empty",
        "A secret is missing",
        "A manifest reads a secret from an environment variable that is not set here. Export it, or map "
        "it into the job of the pipeline. Pull requests of forks get no secrets: validate those, and "
        "plan after a review.",
    ),
    Explanation(
        "E014",
        r"the secret of .* would go to|which the base of this pull request does not know",
        "A pull request sends a secret to a new address",
        "The pull request changes where a secret would be sent. Nothing was sent. Review the address, "
        "then allow it in the pipeline with `--allow connect:cluster/NAME`.",
    ),
    Explanation(
        "E015",
        r"namespace .* does not exist|is neither declared nor on cluster",
        "The namespace does not exist",
        "A namespace is not created because a topic names it; a typing error would make a second one. "
        "Declare it with `kind: Namespace`, or correct `metadata.namespace`. Levels above it are created "
        "with it.",
    ),
    Explanation(
        "E016",
        r"would be fewer",
        "Partitions cannot be taken away",
        "No platform removes partitions from a topic, because they hold records. Set the number back. On "
        "Kafka a topic of another name can have fewer: declare it with `movedFrom` naming the old one, "
        "and the plan copies the records.",
    ),
    Explanation(
        "E017",
        r"lockfile\.json is missing",
        "The state is lost",
        "`lockfile.json` is missing while other files of the state are there. To begin with an empty state "
        "would forget what you own, so nothing is done. Restore the file from a version of the bucket, or rebuild it "
        "from the files next to it: `reconciler state repair`. It shows what it would do before it writes.",
    ),
    Explanation(
        "E018",
        r"is damaged: its sha256|lockfile\.json cannot be read",
        "A file of the state is damaged",
        "A file of the state is not what was written. Nothing was changed. Restore it from a version of "
        "the bucket, or let `reconciler state repair` rebuild what it can from the journals of the runs.",
    ),
    Explanation(
        "E019",
        r"was written by a newer version|of a newer format",
        "A newer version was here",
        "A newer version of reconciler has written this file. This one does not guess what it means. Use "
        "the same version everywhere: in pipelines, pin it.",
    ),
    Explanation(
        "E020",
        r": access denied",
        "The bucket refuses these credentials",
        "The credentials are valid and lack a right. The hint names it. The state needs reading, writing "
        "and listing below its prefix; embedded clusters need deleting, too. `aws sts "
        "get-caller-identity` shows who you are.",
    ),
    Explanation(
        "E021",
        r"there is no such bucket",
        "The bucket does not exist",
        "Reconciler never creates a bucket. Create it, correct its name, or correct `endpoint` and `region`.",
    ),
    Explanation(
        "E022",
        r"no credentials were found|the credentials are not accepted|the credentials have expired",
        "No valid credentials for the bucket",
        "Credentials come from the places that AWS's tools use: environment variables, the profile, the "
        "role of the machine. Log in again, or set them. What was acknowledged before is not lost.",
    ),
    Explanation(
        "E023",
        r"does not keep the promises a state needs",
        "The store cannot hold a state",
        "A state needs writes that fail when the object has changed. This store ignores that condition, "
        "so two runs could overwrite each other. Use S3 or a store with conditional writes, or a local "
        "file system with locks.",
    ),
    Explanation(
        "E024",
        r"PySpark is not installed|which needs Java",
        "Data jobs need Spark",
        "Mirrors, copies and archives of records run on Spark, which needs PySpark and a Java runtime, "
        "17 or newer. Install them with `pip install 'stream-reconciler[spark]'`; from a checkout: `pip "
        "install '.[spark]'`. Plans without such jobs need neither. `reconciler apply --detach` does all "
        "but the jobs.",
    ),
    Explanation(
        "E025",
        r"only its link writes to it",
        "A mirror takes no records",
        "A mirror is kept equal to its source, so only its link may write to it. Produce to the source. "
        "When the source is lost: `reconciler mirror failover ADDRESS`, and it takes records at once.",
    ),
    Explanation(
        "E026",
        r"cannot be reversed",
        "This mirror cannot swap roles",
        "Roles are swapped over a link with `mode: bidirectional` and without a prefix, between clusters of one "
        "platform. Else promote the mirror or fail it over, and declare a link the other way.",
    ),
    Explanation(
        "E027",
        r"cannot be written or read: migration",
        "The topic is being mounted or unmounted",
        "While a topic is mounted or unmounted, its records cannot be written or read. `reconciler mount status` "
        "shows its progress and what may be done. Where the process died, `reconciler run "
        "--once` continues it.",
    ),
    Explanation(
        "E028",
        r"actions are in doubt since the last run|has been in progress since the last run",
        "An earlier run left something open",
        "A run ended before it knew how an action had ended. Before anything else is done, the next run "
        "looks at the clusters to find out. Here it could not. The hint names what is missing, and how to continue."
        "",
    ),
    Explanation(
        "E029",
        r"there is no terminal to confirm on",
        "There is no terminal to confirm on",
        "`apply` asks before it changes anything, and there is no terminal. In scripts and pipelines "
        "write `--yes`; guards still block what is dangerous.",
    ),
    Explanation(
        "E030",
        r"needs .*, not installed here|its client is not installed",
        "An extra is not installed",
        "Kafka, Spark and other parts are extras of the package, so that small installations stay small. "
        "The hint names the one that is missing.",
    ),
)
"""Explanations of frequent errors; the meaning of a code never changes."""

CODE: Final = re.compile(r"E\d{3}", re.IGNORECASE)


def wrap_explanation(text: str) -> str:
    """Wrap a text at 100 characters, except indented lines."""
    return "\n".join(paragraph if paragraph.startswith(" ") else fill(paragraph, 100) for paragraph in text.split("\n"))


def find_explanation(message: str) -> Explanation | None:
    """Return the first explanation that matches an error message, or `None`."""
    first = message.split("\n", 1)[0]
    return next((explanation for explanation in EXPLANATIONS if re.search(explanation.message, first)), None)
