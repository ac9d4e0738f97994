"""The wheel: what PyPI shows of it, what it holds, and what it needs."""

from __future__ import annotations

import re
import subprocess
import sys
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from reconciler import __home__, __site__, __version__
from reconciler.cli.json.schemas import build_schema_files
from tests.docs.markdown import ROOT

pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return ZipFile(next(folder.glob("*.whl")))


@pytest.fixture
def metadata(wheel: ZipFile) -> Message:
    return Parser().parsestr(wheel.read(f"stream_reconciler-{__version__}.dist-info/METADATA").decode())


def test_every_link_of_the_page_on_pypi_leads_to_a_file_at_the_tag_of_this_version(metadata: Message) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", str(metadata.get_payload()))
    raw = __home__.replace("github.com", "raw.githubusercontent.com")
    for link in links:
        path = re.sub(rf"^({re.escape(__home__)}/blob|{re.escape(raw)})/v{re.escape(__version__)}/", "", link)
        assert path != link, f"{link} leads nowhere from there"
        assert (ROOT / path.partition("#")[0]).is_file(), link
    assert len(links) > 10


def test_it_holds_every_schema_under_the_name_of_its_address(wheel: ZipFile) -> None:
    held = {name: wheel.read(name) for name in wheel.namelist() if name.startswith("reconciler/schemas/")}
    assert held == {f"reconciler/schemas/{name}.json": body for name, body in build_schema_files().items()}
    for name, body in build_schema_files().items():
        assert f'"$id": "{__site__}/{__version__}/schemas/{name}.json"'.encode() in body


def test_it_holds_nothing_but_the_package_and_its_schemas(wheel: ZipFile) -> None:
    kinds = {(name.split("/")[0], Path(name).suffix) for name in wheel.namelist()}
    assert {folder for folder, _ in kinds} == {"reconciler", f"stream_reconciler-{__version__}.dist-info"}
    assert {kind for folder, kind in kinds if folder == "reconciler"} <= {".py", ".json", ".typed", ".css", ".js"}


def test_what_only_records_need_comes_with_the_extras_that_read_or_write_them(metadata: Message) -> None:
    needs = [str(each) for each in metadata.get_all("Requires-Dist", [])]
    assert [each for each in needs if re.match("(pyarrow|numpy|pyspark|pandas)", each) and "extra ==" not in each] == []
    for extra in ("records", "spark", "connect"):
        assert any(each.startswith("pyarrow") and f"extra == '{extra}'" in each for each in needs), extra
