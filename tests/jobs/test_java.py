"""Java is asked for before Spark is started; a missing or old one is one line with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import UserError
from reconciler.jobs.session import check_java, start_session
from reconciler.resources.workspace import SparkSpec


def program(folder: Path, name: str, script: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def java(folder: Path, version: str) -> Path:
    """A Java that says what real ones say: on standard error, in their words."""
    return program(folder, "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


@pytest.mark.parametrize("version", ["17.0.15", "21", "21-ea", "25.0.1"])
def test_a_java_that_is_new_enough_is_taken(tmp_path: Path, version: str) -> None:
    java(tmp_path, version)
    check_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(("version", "means"), [("1.8.0_412", "8"), ("11.0.22", "11"), ("16.0.2", "16")])
def test_a_java_that_is_too_old_is_named_with_its_version(tmp_path: Path, version: str, means: str) -> None:
    path = java(tmp_path, version)
    with pytest.raises(UserError) as refused:
        check_java({"PATH": str(tmp_path)})
    message = f"Data jobs run on Spark, which needs Java 17 or newer: {path} is Java {means}"
    assert refused.value.message == message


def test_no_java_at_all_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        check_java({"PATH": str(tmp_path)})
    assert refused.value.message.endswith("there is no java on the PATH")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("installer", "command"),
    [
        ("apt-get", "sudo apt-get install openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install java-17-openjdk-headless"),
        ("apk", "sudo apk add openjdk17-jre-headless"),
        ("brew", "brew install openjdk@17"),
    ],
)
def test_the_hint_is_the_command_of_this_machine(tmp_path: Path, installer: str, command: str) -> None:
    program(tmp_path, installer)
    with pytest.raises(UserError) as refused:
        check_java({"PATH": str(tmp_path)})
    assert refused.value.hint == f"Install it: {command}; or set JAVA_HOME to one."


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    java(tmp_path / "path", "11.0.1")
    java(tmp_path / "home" / "bin", "17.0.1")
    check_java({"PATH": str(tmp_path / "path"), "JAVA_HOME": str(tmp_path / "home")})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    java(tmp_path / "path", "17.0.1")
    with pytest.raises(UserError, match=r"JAVA_HOME is .*nowhere, and there is no bin/java in it"):
        check_java({"PATH": str(tmp_path / "path"), "JAVA_HOME": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("script", ["exit 3", "echo no idea", "kill -9 $$"])
def test_a_java_that_does_not_say_its_version_is_refused(tmp_path: Path, script: str) -> None:
    program(tmp_path, "java", script)
    with pytest.raises(UserError, match="it does not say its version"):
        check_java({"PATH": f"{tmp_path}:/bin:/usr/bin"})


def test_a_file_called_java_that_is_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "java").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(UserError, match="it does not say its version"):
        check_java({"PATH": str(tmp_path)})


def test_a_session_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no java on the PATH"):
        start_session(SparkSpec(), environ={"PATH": str(tmp_path)})
