"""Writes docs/reference/python.md: what `import reconciler` gives, from its signatures and docstrings."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import reconciler
from reconciler.errors import ReconcilerError

_INTRO: Final = """\
A script or a notebook imports these names from `reconciler`, and no others: everything else is private and may change.
Each name is loaded when it is first used. Errors are those of the command line: `message` says what is wrong, `hint`
what to do.

```python
from reconciler import Workspace

shop = Workspace.open("shop")  # reconciler.yaml, environment, variables
plan = shop.plan()  # nothing is changed
print(plan.summary)
result = shop.apply(plan)  # the same or less, under the lease
for item in shop.drift():
    print(item.kind, item.address, item.message)
```

A plan that guards block takes `shop.apply(plan, allow=["delete:topic/west/shop:orders"])`. `plan.to_json()` returns
what `reconciler plan --format json` prints. Warnings go to the logger `reconciler`. A whole example:
[A workspace from Python](../../examples/notebook/README.md). Spark: [Topics as DataFrames](../guides/data-frames.md).
How the command line shows the same errors: [Errors](errors.md).
"""
GROUPS: Final = {
    "Workspaces": ("Workspace", "WorkspacePlan", "ApplyResult", "DriftItem"),
    "Topics in Spark": ("register_topics", "register", "check_java"),
    "The embedded cluster": ("EmbeddedCluster", "OffsetRange", "ToEarliest", "AclEntry"),
    "Object storage": ("DirectoryStore", "MemoryStore", "StoreSettings", "open_store"),
}
_VERSION: Final = (
    ("__version__", "The version."),
    ("__home__", "Where the project will be public."),
    ("__site__", "Where its documentation will be."),
)
_SHOWN: Final = {"Workspace", "WorkspacePlan", "ApplyResult", "DriftItem"}
"""Classes whose methods are shown with all they say; those of the others have a line each."""


def page() -> tuple[str, str]:
    """Return the name of the page and its text."""
    parts = ["# In Python\n", _INTRO]
    for title, names in GROUPS.items():
        parts += [f"## {title}\n", *(part for name in names for part in _entry(name, getattr(reconciler, name)))]
    parts += ["## Errors\n", "| name | base | exit code | when |\n| --- | --- | ---: | --- |"]
    parts += [_error(name) for name in reconciler.__all__ if name.endswith("Error")]
    parts += [
        "\n## Versions\n",
        "| name | what |\n| --- | --- |",
        *(f"| `{name}` | {text} |" for name, text in _VERSION),
    ]
    return "python.md", "\n".join(parts) + "\n"


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}\n"
    is_shown, members = (
        name in _SHOWN,
        dict(_members(value)) if inspect.isclass(value) and name not in GROUPS["Object storage"] else {},
    )
    if not is_shown:
        yield _signature(name, value)
    yield _prose(value)
    for member, inner in members.items():
        if is_shown and not isinstance(inner, property):
            yield _signature(f"{name}.{member}", getattr(value, member))
            yield _prose(inner)
    rows = [f"| `{member}` | {_line(inner)} |" for member, inner in members.items() if not is_shown or _is_value(inner)]
    rows += [f"| `{field}` | {text} |" for field, text in _fields(value) if is_shown]
    if rows:
        yield "| name | meaning |\n| --- | --- |\n" + "\n".join(sorted(rows)) + "\n"


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    own = [base for base in reversed(value.__mro__) if base.__module__.startswith("reconciler.")]
    for name, inner in {name: inner for base in own for name, inner in vars(base).items()}.items():
        if not name.startswith("_") and (isinstance(inner, property | classmethod) or inspect.isfunction(inner)):
            yield name, inner


def _is_value(inner: Any) -> bool:
    return isinstance(inner, property)


def _line(inner: Any) -> str:
    return (inspect.getdoc(inner) or "").partition("\n")[0].replace("|", "\\|")


def _fields(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the public fields of a dataclass, each with its type and the text below it."""
    if not inspect.isclass(value):
        return
    (tree,) = ast.parse(inspect.getsource(value)).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for field, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id[0] != "_":
            told = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
            yield field.target.id, f"`{ast.unparse(field.annotation)}`. {told}".strip().replace("|", "\\|")


def _signature(name: str, value: Any) -> str:
    if dataclasses.is_dataclass(value):
        with contextlib.suppress(TypeError):
            value()  # `__init__` is compiled for the first object.
    signature = inspect.signature(value)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    text = str(signature.replace(parameters=kept)).removesuffix(" -> None")
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r"<(?:function|class) [^>]*>|Patience\([^)]*\)", "…", text)
    return f"```text\n{name}{text}\n```\n"


def _prose(value: Any) -> str:
    """Return a docstring as Markdown: `Args` and `Raises` become lists."""
    text = inspect.getdoc(value) or ""
    text = re.sub(r"^(Args|Raises):$", r"\1:\n", text, flags=re.MULTILINE)
    return re.sub(r"^    (\w+): ", r"- `\1`: ", text, flags=re.MULTILINE) + "\n"


def _error(name: str) -> str:
    kind: type[ReconcilerError] = getattr(reconciler, name)
    base = kind.__mro__[1].__name__
    first = (inspect.getdoc(kind) or "").partition("\n")[0].replace("|", "\\|")
    return f"| `{name}` | `{base}` | {kind.exit_code} | {first} |"
