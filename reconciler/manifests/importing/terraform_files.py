"""Which files of Terraform are read: a state where there is one, else the declarations of the folder itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.files import label_of, read_bounded
from reconciler.manifests.importing import terraform_hcl, terraform_state
from reconciler.manifests.importing.hcl.evaluating import Evaluation, Steps
from reconciler.manifests.importing.hcl.parsing import Block, parse_hcl
from reconciler.manifests.importing.hcl.values import UnresolvedError
from reconciler.manifests.importing.sources import read_text, refused
from reconciler.manifests.importing.terraform import KINDS
from reconciler.manifests.problems import ManifestError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reconciler.manifests.importing.found import Reading

HCL: Final = (".tf", ".tofu")
STATE: Final = ".tfstate"
_VALUES: Final = ".tfvars"


def read_terraform(tool: str, path: Path, files: tuple[Path, ...], cwd: Path, reading: Reading) -> bool:
    """Take what Terraform's files say into a reading; tell whether there was any.

    Raises:
        ManifestError: Some are broken; lists every problem of every file.
    """
    states = [file for file in files if file.suffix in {STATE, ".json"} or (file == path and file.suffix not in HCL)]
    if tool == "terraform-hcl" or (tool == "terraform" and not any(map(is_state, states))):
        folder = path if path.is_dir() else path.parent
        return _read_hcl([file for file in files if file.parent == folder], cwd, reading)
    own = [file for file in states if file == path or is_state(file)]
    for file in own:
        terraform_state.read(read_text(file, cwd), label_of(file, cwd), reading)
    reading.files = [label_of(file, cwd) for file in own]
    reading.unread = [label_of(file, cwd) for file in files if file.suffix in HCL]
    return bool(own)


def is_state(file: Path) -> bool:
    """Tell whether a file is a state, also one that is broken or of another version."""
    if file.suffix == STATE:
        return True
    raw = read_bounded(file, file.name)
    return not isinstance(raw, Problem) and terraform_state.is_state(raw)


def _read_hcl(files: list[Path], cwd: Path, reading: Reading) -> bool:
    own = [file for file in files if file.suffix in HCL]
    parsed = _parsed(own, cwd)
    values = [file for file in files if file.name == f"terraform{_VALUES}" or file.name.endswith(f".auto{_VALUES}")]

    def read_file(name: str) -> str:
        return _beside(own[0].parent, name, cwd)

    given = _given(_parsed(values, cwd), read_file)
    terraform_hcl.read(parsed, given, reading, read_file)
    reading.files = [label for label, _ in parsed]
    return any(_is_of_kafka(block) for _, body in parsed for block in body.blocks)


def _parsed(files: Iterable[Path], cwd: Path) -> list[tuple[str, Block]]:
    found: list[tuple[str, Block]] = []
    problems: list[Problem] = []
    for file in files:
        label = label_of(file, cwd)
        parsed = parse_hcl(read_text(file, cwd), label)
        if isinstance(parsed, Problem):
            problems.append(parsed)
        else:
            found.append((label, parsed))
    if problems:
        raise refused(problems)
    return found


def _given(files: list[tuple[str, Block]], read_file: Any) -> dict[str, Any]:
    """Return the values of variables; one that refers to anything has none."""
    evaluation = Evaluation({}, Steps(), read_file)
    found: dict[str, Any] = {}
    for _, body in files:
        for name, attribute in body.attributes.items():
            try:
                found[name] = evaluation.value(attribute.expression)
            except UnresolvedError:
                continue
    return found


def _beside(folder: Path, name: str, cwd: Path) -> str:
    """Return a text that declarations read: only from their own folder and below."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UnresolvedError("it reads a file outside its own folder")
    try:
        return read_text(path, cwd).decode()
    except (ManifestError, UnicodeDecodeError) as error:
        raise UnresolvedError(f"the file {name} cannot be read") from error


def _is_of_kafka(block: Block) -> bool:
    is_ours = block.kind == "resource" and bool(block.labels) and block.labels[0] in KINDS
    return is_ours or block.kind == "module"
