"""Starting: what a user waits for before anything happens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from measuring import HERE, RECONCILER, Row, Scale, compared, in_turns, process
from workspaces import write_workspace

FLOOR = str(HERE / "floors" / "typer_app.py")


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    repetitions = scale.of(15, 2)
    helps = {
        "floor": lambda: process(sys.executable, FLOOR, "--help").seconds,
        "ours": lambda: process(RECONCILER, "--help").seconds,
    }
    yield compared("`reconciler --help`", "a typer app with as many commands", in_turns(helps, repetitions), aim=1.3)
    folder = write_workspace(scratch / "small", topics=10, files=2)
    validates = {
        "floor": lambda: process("env", "FLOOR_MODELS=1", sys.executable, FLOOR, "validate").seconds,
        "ours": lambda: process(RECONCILER, "validate", folder=folder).seconds,
    }
    yield compared(
        "`reconciler validate` of 10 topics",
        "that app with our models",
        in_turns(validates, repetitions),
        aim=1.2,
        why="It also imports the YAML parser and the checks, which the floor does not have.",
    )
    empty = write_workspace(scratch / "empty", topics=0, files=1)
    process(RECONCILER, "apply", "--yes", folder=empty)
    plans = {
        "floor": lambda: process(sys.executable, "-c", "import typer, pydantic, yaml").seconds,
        "ours": lambda: process(RECONCILER, "plan", folder=empty).seconds,
    }
    against = '`python -c "import typer, pydantic, yaml"`'
    yield compared("`reconciler plan` without topics", against, in_turns(plans, repetitions), aim=1.8)
