"""A Kerberos realm on this machine: a KDC from Debian's packages, and the Python package `gssapi` compiled with them.

Packages are fetched by `apt-get download` and unpacked into the user's cache folder, once; nothing is installed.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.servers.ports import free_ports

REALM: Final = "EXAMPLE.TEST"
PRINCIPAL: Final = f"reconciler@{REALM}"
SERVICE: Final = f"kafka/127.0.0.1@{REALM}"
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stream-reconciler" / "kerberos"
_PACKAGES: Final = (
    *("krb5-kdc", "krb5-admin-server", "krb5-user", "libkdb5-10", "libkadm5srv-mit12", "libkadm5clnt-mit12"),
    *("libgssrpc4", "libverto1", "libverto-libev1", "libev4", "libkrb5-dev", "krb5-multidev", "comerr-dev"),
    *("libgssapi-krb5-2", "libkrb5-3", "libk5crypto3", "libkrb5support0"),
)
_SECONDS: Final = 600


@dataclass(frozen=True)
class Realm:
    """A realm whose KDC runs."""

    folder: Path
    environ: dict[str, str]

    @property
    def keytab(self) -> Path:
        return self.folder / "reconciler.keytab"

    @property
    def broker_keytab(self) -> Path:
        return self.folder / "broker.keytab"

    def add_principal(self, name: str) -> Path:
        """Add a principal and return its keytab."""
        keytab = self.folder / f"{name}.keytab"
        self.administer(f"addprinc -randkey {name}@{REALM}")
        self.administer(f"ktadd -k {keytab} {name}@{REALM}")
        return keytab

    def request_ticket(self, life: str = "1h") -> None:
        """Put a ticket into the cache of the machine."""
        _run(["kinit", "-l", life, "-k", "-t", str(self.keytab), PRINCIPAL], self.environ)

    def has_ticket(self) -> bool:
        """Return whether the cache of the machine has a ticket that is valid."""
        return subprocess.run(["klist", "-s"], env=self.environ, check=False).returncode == 0

    def count_tickets(self) -> int:
        """Return the number of tickets that the KDC has granted to the principal at logins."""
        log = (self.folder / "kdc.log").read_text()
        return sum("AS_REQ" in line and "ISSUE" in line and PRINCIPAL in line for line in log.splitlines())

    def administer(self, command: str) -> str:
        """Run a command of kadmin.local."""
        return _run(["kadmin.local", "-r", REALM, "-q", command], self.environ)


@contextmanager
def start_realm(ticket_life: str = "1h") -> Iterator[Realm]:
    """Start a KDC, and set KRB5_CONFIG of this process and those that it starts."""
    root = _unpack()
    with tempfile.TemporaryDirectory(prefix="kdc-") as name:
        folder, (port,) = Path(name), free_ports(1)
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n"
            f" dns_canonicalize_hostname = false\n udp_preference_limit = 1\n ticket_lifetime = {ticket_life}\n"
            f" default_ccache_name = FILE:{folder}/tickets\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
            f"  acl_file = {folder}/acl\n  max_life = {ticket_life}\n }}\n"
            f"[dbmodules]\n db_module_dir = {root}/usr/lib/x86_64-linux-gnu/krb5/plugins/kdb\n"
            f"[logging]\n kdc = FILE:{folder}/kdc.log\n"
        )
        environ = {
            **os.environ,
            "PATH": f"{root}/usr/sbin:{root}/usr/bin:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": f"{root}/usr/lib/x86_64-linux-gnu",
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        }
        realm = Realm(folder, environ)
        _run(["kdb5_util", "-r", REALM, "create", "-s", "-P", "of-the-database"], environ)
        for principal, keytab in ((PRINCIPAL, realm.keytab), (SERVICE, realm.broker_keytab)):
            realm.administer(f"addprinc -randkey {principal}")
            realm.administer(f"ktadd -k {keytab} {principal}")
        before = os.environ.get("KRB5_CONFIG")
        os.environ["KRB5_CONFIG"] = environ["KRB5_CONFIG"]
        kdc = subprocess.Popen(["krb5kdc", "-n", "-r", REALM], env=environ)
        try:
            yield realm
        finally:
            kdc.terminate()
            kdc.wait()
            del os.environ["KRB5_CONFIG"]
            if before is not None:
                os.environ["KRB5_CONFIG"] = before


def import_gssapi() -> None:
    """Make `gssapi` importable, compiled once against the unpacked headers."""
    root = _unpack()
    sys.path.append(str(root / "python"))
    importlib.import_module("gssapi")


def _unpack() -> Path:
    root = _CACHE / "unpacked"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not root.is_dir():
            with tempfile.TemporaryDirectory(dir=_CACHE) as scratch:
                _fetch(Path(scratch))
                (Path(scratch) / "root").rename(root)
    return root


def _fetch(scratch: Path) -> None:
    _run(["apt-get", "update", "-qq"])
    _run(["apt-get", "download", "-qq", *_PACKAGES], cwd=scratch)
    root = scratch / "root"
    for package in sorted(scratch.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(root)])
    libraries = root / "usr/lib/x86_64-linux-gnu"
    environ = {
        **os.environ,
        "GSSAPI_COMPILER_ARGS": f"-DHAS_GSSAPI_EXT_H -I{root}/usr/include -I{root}/usr/include/mit-krb5",
        "GSSAPI_LINKER_ARGS": f"-L{libraries} -L{libraries}/mit-krb5 -lgssapi_krb5",
        "GSSAPI_MAIN_LIB": str(libraries / "libgssapi_krb5.so.2"),
        "CFLAGS": "-O0",
    }
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(root / "python")]
    _run([*install, "gssapi>=1.9,<2", "decorator>=5"], environ)


def _run(command: list[str], environ: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    ended = subprocess.run(command, env=environ, cwd=cwd, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    return ended.stdout
