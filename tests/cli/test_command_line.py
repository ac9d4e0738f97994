"""The command line itself: help, versions, usage errors, completion, and what is loaded for them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from reconciler.cli.app import COMMANDS, CommandEntry, build_root_command
from reconciler.cli.main import main
from reconciler.operations.run import JOBS
from tests.cli.conftest import COMMAND, Call, Run, environment


def _paths(entries: tuple[CommandEntry, ...], *above: str) -> Iterator[tuple[str, ...]]:
    for entry in entries:
        yield (*above, entry.name)
        yield from _paths(entry.entries, *above, entry.name)


PATHS = tuple(_paths(COMMANDS))


def test_the_help_of_run_names_every_job_in_order(run: Run) -> None:
    words = " ".join(run("run", "--help").stdout.split())
    assert f"JOBS: {', '.join(JOBS)}; separate several" in words


def test_help_lists_every_command_with_one_line(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    assert not done.stderr
    for entry in COMMANDS:
        assert any(line.split()[:1] == [entry.name] and entry.summary in line for line in done.stdout.splitlines())


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_explains_itself(path: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, option]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: reconciler {' '.join(path)}")
    assert "\x1b" not in said


LOADED = (
    "import sys; from reconciler.cli.main import main; code = main(sys.argv[2:]); "
    "print(sorted(set(sys.argv[1].split()) & set(sys.modules))); sys.exit(code)"
)
LAZY = "boto3 botocore deepdiff prometheus_client pandas"
EVENT_LOOP = "asyncio ssl"
HEAVY = f"pyarrow numpy pyspark rich yaml orjson {LAZY}"


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], f"{HEAVY} pydantic"),
        (["--version"], f"{HEAVY} pydantic"),
        (["topic", "--help"], HEAVY),
        # Typer reads the options of a command with pydantic.
        (["plan", "--help"], HEAVY),
        (["topic", "consume", "-h"], HEAVY),
    ],
)
def test_help_and_version_load_nothing_heavy(arguments: list[str], unwanted: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, unwanted, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        ("validate", f"{LAZY} {EVENT_LOOP}"),
        ("plan", f"{LAZY} {EVENT_LOOP}"),
        ("apply --yes", LAZY),
        ("state list", LAZY),
    ],
)
def test_work_on_a_folder_loads_no_library_that_only_others_need(
    command: str, unwanted: str, call: Call, tmp_path: Path
) -> None:
    assert call("apply", "--yes").code == 0
    manifest = tmp_path / "manifests" / "example.yaml"
    assert "partitions: 3" in manifest.read_text()
    manifest.write_text(manifest.read_text().replace("partitions: 3", "partitions: 4"))
    done = subprocess.run(
        [sys.executable, "-c", LOADED, unwanted, *command.split()],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment(),
    )
    assert done.stdout.splitlines()[-1] == "[]"


COUNTED = """
import gc, json, sys
from reconciler.cli.main import main
code = main(sys.argv[1:])
ours = {
    (each.__module__, each.__qualname__): vars(each)
    for each in gc.get_objects() if isinstance(each, type) and str(each.__module__).startswith("reconciler.")
}
print(json.dumps({
    "modules": sum(name.partition(".")[0] == "reconciler" for name in sys.modules),
    "data classes": sum("__dataclass_fields__" in each for each in ours.values()),
    "models": sum("__pydantic_fields__" in each for each in ours.values()),
    "models ready to validate": sum(each.get("__pydantic_complete__") is True for each in ours.values()),
}))
sys.exit(code)
"""
BUDGETS: Final[Mapping[str, Mapping[str, int]]] = {
    "--help": {"modules": 13, "data classes": 4, "models": 0},
    "validate": {"modules": 79, "data classes": 136, "models": 58, "models ready to validate": 9},
    "plan": {"modules": 187, "data classes": 327, "models": 76, "models ready to validate": 15},
    "apply --yes": {"modules": 210, "data classes": 394, "models": 76, "models ready to validate": 16},
}
"""What a command with nothing to do imports and defines at most, of ours."""


@pytest.mark.thorough
@pytest.mark.parametrize("command", BUDGETS)
def test_a_command_imports_and_defines_no_more_than_its_budget(command: str, call: Call, tmp_path: Path) -> None:
    assert call("apply", "--yes").code == 0
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, *command.split()],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment(),
    )
    counted = json.loads(done.stdout.splitlines()[-1])
    assert {name: (counted[name], most) for name, most in BUDGETS[command].items() if counted[name] > most} == {}


ON_WINDOWS = """
import os, signal, sys
sys.modules["fcntl"] = None
sys.platform = "win32"
del signal.SIGALRM, signal.setitimer, os.fork
from reconciler.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["plan"]])
def test_windows_is_refused_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment(),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: reconciler runs on Linux and macOS; on Windows, run it inside WSL\n"


def test_version_is_one_line(run: Run) -> None:
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("reconciler ")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plna"], "did you mean 'plan'?"),
        (["topic", "lst"], "did you mean 'list'?"),
        (["plan", "--tarket", "x"], "No such option: --tarket"),
        (["explain"], "Missing argument 'ADDR|CODE'"),
        (["apply", "--parallelism", "0"], "Invalid value for '--parallelism'"),
        (["plan", "--format", "xml"], "Invalid value for '--format'"),
        (["plan", "surplus"], "unexpected extra argument"),
        (["plan", "-o", "json"], "-o is --out here, and 'json' is a format"),
        (["plan", "-o", "-"], "--out is a file, not '-'"),
        (["apply", "--strict", "--yes"], "--strict is only for a saved plan"),
        (["apply", "--lock-timeout", "soon", "--yes"], "--lock-timeout soon: not a duration"),
        (["apply", "--lock-timeout", "infinite", "--yes"], "--lock-timeout infinite has no end"),
        (["topic", "alter", "topic/west/x"], "there is nothing to alter"),
        (["topic", "alter", "topic/west/x", "--set", "a=1", "--delete", "a"], "a is set and deleted"),
        (["namespace", "alter", "west", "x", "--set", "a=1", "--delete", "a"], "a is set and deleted"),
        (["link", "alter", "link/east/x", "--set", "a=1", "--delete", "a"], "a is set and deleted"),
        (["topic", "alter", "topic/west/x", "--set", "x"], "--set 'x' is not KEY=VALUE"),
        (["run"], "run needs --once or --interval"),
        (["run", "--once", "--interval", "30s"], "run needs --once or --interval"),
        (["run", "--interval", "infinite"], "--interval infinite has no end"),
        (["plan", "--principal", "bob"], "--principal 'bob' is not a principal"),
        (
            ["topic", "list", "--principal", "User:*"],
            "--principal User:* stands for every principal, but a single one is needed",
        ),
        (["plan", "--host", "10.0.0.7"], "--host needs --principal"),
        (["apply"], "there is no terminal to confirm on; nothing was done"),
        (["destroy"], "there is no terminal to confirm on; nothing was done\n  hint: Give --yes\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_called_wrongly_exits_64_and_says_how(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(arguments) == 64
    shown = capsys.readouterr()
    assert not shown.out
    assert said in shown.err
    assert shown.err.startswith("Error: ")
    assert "\n  hint: " in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.thorough
def test_the_process_leaves_with_the_code(run: Run) -> None:
    done = run("plna")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith("Error: No such command: 'plna'")


ENDING = """
import atexit, sys, threading
from reconciler.cli.main import run_process
def tell():
    threading.main_thread().join()
    print("a thread has ended", flush=True)
atexit.register(print, "what was registered has run")
if sys.argv.pop(1) == "waiting":
    threading.Thread(target=tell).start()
run_process()
"""


@pytest.mark.parametrize("thread", ["none", "waiting"])
def test_a_process_ends_after_its_threads_and_what_was_registered(thread: str) -> None:
    command = [sys.executable, "-c", ENDING, thread, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    assert "what was registered has run" in done.stdout
    assert ("a thread has ended" in done.stdout) == (thread == "waiting")


def test_without_a_command_it_explains_itself_and_exits_64(run: Run) -> None:
    done = run()
    assert done.returncode == 64
    assert done.stderr.startswith("Usage: reconciler")


@pytest.mark.parametrize("words", [("--nope",), ("west/orders", "--out")], ids=["unknown", "without its value"])
def test_a_hint_names_the_help_of_the_command_that_was_meant(run: Run, words: tuple[str, ...]) -> None:
    assert "hint: See `reconciler topic consume --help`" in run("topic", "consume", *words).stderr


@pytest.mark.parametrize(("shell", "sign"), [("bash", "complete "), ("zsh", "#compdef"), ("fish", "complete ")])
def test_completion_scripts_are_printed(run: Run, shell: str, sign: str) -> None:
    done = run("--show-completion", shell, environ={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert done.returncode == 0
    assert sign in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("reconciler pl", {"plan"}),
        ("reconciler topic de", {"delete", "describe"}),
        ("reconciler plan --fo", {"--format"}),
    ],
)
def test_completion_offers_commands_and_options(run: Run, words: str, offered: set[str]) -> None:
    done = run(
        environ={
            "_RECONCILER_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
    )
    assert done.returncode == 0
    assert {line.split(",")[-1] for line in done.stdout.split()} == offered


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")


def test_an_encoding_that_has_no_such_sign_is_no_error(run: Run) -> None:
    done = run("explain", "✗", environ={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_an_input_that_was_closed_beforehand_has_nothing_in_it(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("reconciler")
    produce = f'"{program}" topic produce topic/west/shop:orders --input-format jsonl --input - <&-'
    command = f'"{program}" init && "{program}" apply --yes && {produce}'
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Produced 0 records" in done.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_an_output_that_was_closed_beforehand_is_no_error(closed: str, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("reconciler")
    command = f'"{program}" explain E005 {closed}; echo $? >"{tmp_path / "code"}"'
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    assert (tmp_path / "code").read_text() == "0\n"


def test_the_tree_can_be_built_twice() -> None:
    assert build_root_command() is not build_root_command()
