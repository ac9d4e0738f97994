"""The figures of the house: how much code there is, how many ways it has, and how its words read.

`python -m tests.structure.gates` prints them. Moving or renaming code changes none of them: actions are counted
wherever one is made, methods in every protocol below `providers/`, words in every module.
"""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from tests.structure.imports import ROOT

IDIOMS: Final = re.compile(
    r"\b(nobody|whoever|somebody|anybody|anew|afresh|lies|lying|meanwhile|gone on with|goes on|go on|once more"
    r"|looked at|is looked|are looked|was looked|is told|are told|is asked|are asked|was asked|is said|was said"
    r"|came of|lean(s|ed)? on|rests? on|as far as|for good|to its end|under way|half-way|no use|is none|So it is"
    r"|let be|beside)\b"
)
"""Turns of phrase that a reader of Kafka's or Terraform's documentation does not meet."""
VAGUE: Final = frozenset(
    {"found", "each", "said", "kept", "told", "there", "here", "lying", "asked", "given", "brought", "over"}
)
NOUNS: Final = frozenset(
    {"Mounting", "Observed", "Recorded", "Desired", "Setting", "Reading", "Failed", "Done", "String", "Thing"}
)
"""Names of classes that end as a participle does and are words of the glossary, or are none."""
_PARTICIPLE: Final = re.compile(r"[A-Z][a-z]+(ing|ed)")
_SECTIONS: Final = 3
_WORDS: Final = 3
"""A string of fewer words is no prose."""


@dataclass(frozen=True)
class House:
    """A checkout, parsed."""

    root: Path = ROOT

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """The text of each module, by its path in the package."""
        package = self.root / "reconciler"
        return {str(path.relative_to(package)): path.read_text() for path in sorted(package.rglob("*.py"))}

    @cached_property
    def trees(self) -> Mapping[str, ast.Module]:
        return {name: ast.parse(text) for name, text in self.sources.items()}

    # How much there is.

    @property
    def lines(self) -> int:
        return sum(text.count("\n") for text in self.sources.values())

    @property
    def test_lines(self) -> int:
        return sum(path.read_text().count("\n") for path in (self.root / "tests").rglob("*.py"))

    @property
    def schemas(self) -> int:
        return len(list((self.root / "schemas").glob("*.json")))

    def classes_in(self, folder: str) -> int:
        """Count the classes of modules whose path begins so."""
        return sum(
            isinstance(node, ast.ClassDef)
            for name, tree in self.trees.items()
            if name.startswith(folder)
            for node in ast.walk(tree)
        )

    def fields_of(self, name: str) -> int:
        """Count the fields of a class, of the largest one where several have the name."""
        counts = [
            sum(isinstance(line, ast.AnnAssign) for line in node.body)
            for node in self.nodes
            if isinstance(node, ast.ClassDef) and node.name == name
        ]
        if not counts:
            message = f"no class is called {name}: the figure has to follow it to its new name"
            raise LookupError(message)
        return max(counts)

    # How many ways it has.

    @cached_property
    def action_kinds(self) -> frozenset[str]:
        """The classes of actions: the members of the union `Action`."""
        for node in self.trees["planning/actions.py"].body:
            if isinstance(node, (ast.AnnAssign, ast.Assign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(target, ast.Name) and target.id == "Action" for target in targets):
                    names = re.findall(r"\b[A-Z]\w+\b", ast.unparse(node.value))
                    return frozenset(names) & self._classes("planning/actions.py")
        message = "planning/actions.py has no union called Action: the figure has to follow it"
        raise LookupError(message)

    @property
    def actions_made_elsewhere(self) -> Mapping[str, int]:
        """Calls outside `planning/` that make an action, by module: of a class, or of a function that returns one.

        A function of `planning/` whose annotation promises an action makes it for who calls it. The planner itself
        returns a plan.
        """
        makers = self._makers()
        counts: Counter[str] = Counter()
        for name, tree in self.trees.items():
            if name.startswith("planning/"):
                continue
            known = {
                alias.asname or alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reconciler.planning")
                for alias in node.names
                if alias.name in makers
            }
            counts[name] += sum(_called(node) in known for node in ast.walk(tree) if isinstance(node, ast.Call))
        return +counts

    def _makers(self) -> frozenset[str]:
        kinds = self.action_kinds
        functions = {
            node.name
            for name, tree in self.trees.items()
            if name.startswith("planning/")
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.returns is not None
            if set(re.findall(r"\w+", ast.unparse(node.returns))) & {*kinds, "Action", "ControlAction", "DataAction"}
        }
        return kinds | functions - READERS

    def _classes(self, module: str) -> frozenset[str]:
        return frozenset(node.name for node in self.trees[module].body if isinstance(node, ast.ClassDef))

    @cached_property
    def protocols(self) -> Sequence[ast.ClassDef]:
        return [
            node
            for name, tree in self.trees.items()
            if name.startswith("providers/")
            for node in tree.body
            if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)
        ]

    def protocol_methods(self, *, by_jobs: bool) -> int:
        """Count methods of platforms: those that only our own copier needs, or the others."""
        return sum(
            isinstance(node, ast.FunctionDef)
            for protocol in self.protocols
            if ("ByJobs" in protocol.name) is by_jobs
            for node in protocol.body
        )

    @property
    def embedded_in_protocol(self) -> int:
        """Modules of the embedded cluster that the protocol of platforms imports."""
        return sum(
            (node.module or "").startswith("reconciler.embedded")
            for name, tree in self.trees.items()
            if re.match(r"providers/protocol", name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
        )

    # How it reads.

    @cached_property
    def prose(self) -> Sequence[str]:
        return [
            *(
                node.value
                for node in self.nodes
                if isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value.count(" ") >= _WORDS - 1
            ),
            *(comment for source in self.sources.values() for comment in _comments_of(source)),
        ]

    @property
    def words(self) -> int:
        return sum(len(text.split()) for text in self.prose)

    @property
    def idioms_per_1000_words(self) -> float:
        """Turns of phrase of `IDIOMS`, for 1,000 words."""
        return 1000 * sum(len(IDIOMS.findall(text)) for text in self.prose) / self.words

    @property
    def vague_locals(self) -> int:
        return sum(
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE for node in self.nodes
        )

    @property
    def vague_parameters(self) -> int:
        return sum(isinstance(node, ast.arg) and node.arg in VAGUE for node in self.nodes)

    @property
    def participles(self) -> int:
        """Classes whose names are a participle or a gerund."""
        names = (node.name.lstrip("_") for node in self.nodes if isinstance(node, ast.ClassDef))
        return sum(name not in NOUNS and _PARTICIPLE.fullmatch(name) is not None for name in names)

    @property
    def sectioned_modules(self) -> int:
        return sum(_sections(source) >= _SECTIONS for source in self.sources.values())

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        return [node for tree in self.trees.values() for node in ast.walk(tree)]


READERS: Final = frozenset({"read_action", "stored_action"})
"""Functions of `planning/` that give back an action which a plan or a journal holds."""


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _comments_of(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def _sections(source: str) -> int:
    lines = source.split("\n")
    return sum(
        line.startswith("# ") and at > 1 and lines[at - 1] == lines[at - 2] == "" for at, line in enumerate(lines)
    )


# The two ways of a failover: by the files, and by its command.


@dataclass(frozen=True, slots=True)
class Failover:
    """The modules that a failover enters, and the functions that handed its actions to a platform."""

    modules: frozenset[str]
    callers: frozenset[str]


def failover_by_file() -> Failover:
    """Fail a mirror over by changing its role in the files."""
    return _add_variable_origin("failed-over", ("apply", "--yes", "--allow", f"failover:{_MIRROR}"))


def failover_by_command(*options: str) -> Failover:
    return _add_variable_origin("mirroring", ("mirror", "failover", _MIRROR, "--yes", *options))


_MIRROR: Final = "mirror/east/orders"
_FILES: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {embedded: {root: "file://west"}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec: {embedded: {root: "file://east"}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, cluster: west}
spec: {partitions: 1}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: twin, cluster: east}
spec: {source: west, mirrorTopics: [{source: orders, state: ROLE}]}
"""
_TRACED: Final = """\
import json, sys
from pathlib import Path
from reconciler.cli.main import main
from reconciler.providers.embedded import provider
from tests.structure.longest_way import Way

whole, callers = provider.EmbeddedProvider.apply, set()

def apply(*given, **named):
    frame = sys._getframe(1)
    callers.add(f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}")
    return whole(*given, **named)

provider.EmbeddedProvider.apply = apply
with Way() as way:
    code = main(sys.argv[1:])
Path("way.json").write_text(json.dumps({"modules": sorted(way.entered), "callers": sorted(callers)}))
sys.exit(code)
"""


def _add_variable_origin(role: str, command: Sequence[str]) -> Failover:
    with tempfile.TemporaryDirectory(prefix="way-") as name:
        folder = Path(name)
        (folder / "reconciler.yaml").write_text(
            'apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: way}\nspec: {state: "file://state"}\n'
        )
        (folder / "manifests").mkdir()
        files = folder / "manifests" / "all.yaml"
        files.write_text(_FILES.replace("ROLE", "mirroring"))
        _ran(folder, "-m", "reconciler.cli.main", "apply", "--yes")
        files.write_text(_FILES.replace("ROLE", role))
        _ran(folder, "-c", _TRACED, *command)
        way = json.loads((folder / "way.json").read_text())
        return Failover(frozenset(way["modules"]), frozenset(way["callers"]))


def _ran(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        (sys.executable, *arguments),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)


def figures(house: House) -> dict[str, float]:
    """Return what can be counted without running anything."""
    return {
        "lines of the package": house.lines,
        "lines of the tests": house.test_lines,
        "actions made outside planning": sum(house.actions_made_elsewhere.values()),
        "methods of platforms": house.protocol_methods(by_jobs=False),
        "methods of platforms by jobs": house.protocol_methods(by_jobs=True),
        "imports of embedded in the protocol": house.embedded_in_protocol,
        "classes in cli/json": house.classes_in("cli/json/"),
        "documents in saved_plan": house.classes_in("planning/saved_plan.py"),
        "schemas": house.schemas,
        "fields of PlanInput": house.fields_of("PlanInput"),
        "fields of Observed": house.fields_of("Observed"),
        "fields of Capabilities": house.fields_of("Capabilities"),
        "words of prose": house.words,
        "idioms per 1,000 words": round(house.idioms_per_1000_words, 1),
        "vague locals": house.vague_locals,
        "vague parameters": house.vague_parameters,
        "classes that are a participle": house.participles,
        "modules with three or more sections": house.sectioned_modules,
    }


def traced() -> dict[str, float]:
    by_file, by_command, stateless = failover_by_file(), failover_by_command(), failover_by_command("--no-state")
    return {
        "functions that hand actions to a platform": len(by_file.callers | by_command.callers | stateless.callers),
        "modules that only one way of a failover enters": len(by_file.modules ^ by_command.modules),
    }


if __name__ == "__main__":
    for _what, _count in (figures(House()) | traced()).items():
        sys.stdout.write(f"{_what}: {_count:,}\n")
