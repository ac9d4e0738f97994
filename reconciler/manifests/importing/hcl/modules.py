"""One module of Terraform: its variables, locals and resources, and the values that can be had of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.importing.hcl.evaluating import Evaluation, Steps
from reconciler.manifests.importing.hcl.values import Names, UnresolvedError, items_of, number_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from reconciler.manifests.importing.hcl.parsing import Attribute, Block

META: Final = frozenset({"for_each", "count", "provider", "depends_on", "lifecycle"})
MAX_INSTANCES: Final = 50_000


class Module:
    """What the files of one folder declare together."""

    def __init__(self, blocks: list[Block], given: Mapping[str, Any], read_file: Callable[[str], str]) -> None:
        """Take all blocks of the folder, and the values that files of variables give."""
        self.blocks = blocks
        self._given = given
        self._variables = {block.labels[0]: block for block in self._of("variable", 1)}
        self._locals = {name: each for block in self._of("locals", 0) for name, each in block.attributes.items()}
        self._resources = {(block.labels[0], block.labels[1]): block for block in self._of("resource", 2)}
        self._known: dict[str, Any] = {}
        self._open: set[str] = set()
        kinds = {kind: Names(self._of_kind(kind)) for kind, _ in self._resources}
        folder = {"module": ".", "root": ".", "cwd": "."}
        roots = {"var": Names(self._variable), "local": Names(self._local), "path": folder, **kinds}
        self.evaluation = Evaluation(roots, Steps(), read_file)

    def instances(self, block: Block) -> Iterator[tuple[Any, Evaluation]]:
        """Yield each instance of a resource: its key (`None`: the only one), and what evaluates its attributes.

        Raises:
            UnresolvedError: How many there are cannot be known from the files.
        """
        if (each := block.attributes.get("for_each")) is not None:
            found = self.evaluation.value(each.expression)
            pairs = items_of(found) if isinstance(found, dict) else [(value, value) for _, value in items_of(found)]
            for key, value in pairs:
                yield key, self.evaluation.with_names({"each": {"key": key, "value": value}})
        elif (count := block.attributes.get("count")) is not None:
            times = number_of(self.evaluation.value(count.expression))
            if times > MAX_INSTANCES:
                raise UnresolvedError(f"there would be more than {MAX_INSTANCES:,} of it")
            for index in range(int(times)):
                yield index, self.evaluation.with_names({"count": {"index": index}})
        else:
            yield None, self.evaluation

    def _of(self, kind: str, labels: int) -> Iterator[Block]:
        return (block for block in self.blocks if block.kind == kind and len(block.labels) == labels)

    def _variable(self, name: str) -> Any:
        if name in self._given:
            return self._given[name]
        block = self._variables.get(name)
        if block is None:
            raise UnresolvedError(f"no variable {name} is declared")
        if "default" not in block.attributes:
            raise UnresolvedError(f"the variable {name} has no value in these files")
        return self._once(f"var.{name}", block.attributes["default"])

    def _local(self, name: str) -> Any:
        if name not in self._locals:
            raise UnresolvedError(f"no local {name} is declared")
        return self._once(f"local.{name}", self._locals[name])

    def _once(self, name: str, attribute: Attribute) -> Any:
        if name in self._open:
            raise UnresolvedError(f"{name} is made of itself")
        if name not in self._known:
            self._open.add(name)
            try:
                self._known[name] = self.evaluation.value(attribute.expression)
            finally:
                self._open.discard(name)
        return self._known[name]

    def _of_kind(self, kind: str) -> Callable[[str], Any]:
        def named(name: str) -> Any:
            block = self._resources.get((kind, name))
            if block is None:
                raise UnresolvedError(f"no {kind}.{name} is declared")
            return self._values(block)

        return named

    def _values(self, block: Block) -> Any:
        """Return a resource as others refer to it: its attributes, or those of each of its instances."""
        made = {key: Names(self._attribute_of(block, here)) for key, here in self.instances(block)}
        if "for_each" in block.attributes:
            return {text_of(key): names for key, names in made.items()}
        return list(made.values()) if "count" in block.attributes else made[None]

    def _attribute_of(self, block: Block, here: Evaluation) -> Callable[[str], Any]:
        def get(name: str) -> Any:
            attribute = block.attributes.get("name" if name == "id" else name)
            if attribute is None:
                raise UnresolvedError(f"{'.'.join(block.labels)}.{name} is known to Terraform alone")
            mark = f"{'.'.join(block.labels)}.{name}"
            if mark in self._open:
                raise UnresolvedError(f"{mark} is made of itself")
            self._open.add(mark)
            try:
                return here.value(attribute.expression)
            finally:
                self._open.discard(mark)

        return get
