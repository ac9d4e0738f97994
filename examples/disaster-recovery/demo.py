"""A second cluster mirrors the first; its failover is rehearsed, then needed; and one day all is as it was.

`demo.py [FOLDER]`: the folder is made anew and left for the reader to play with. A plan that copies wants Java,
although so little is copied without it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from story import Story, chapter, require, say

STORY = Story.of(__file__)
WORKSPACE = STORY.workspace
run, read, edit, settled = STORY.run, STORY.read, STORY.edit, STORY.settled
WEST, EAST = "topic/west/shop:orders", "topic/east/shop:orders"
ORDERS, PAYMENTS = "mirror/east/shop:orders", "mirror/east/shop:payments"
WEST_ORDERS, WEST_PAYMENTS = "mirror/west/shop:orders", "mirror/west/shop:payments"
LINK = "link.yaml"
FIRST, ROUND, REHEARSED, LOST, MEANWHILE = 1_000, 100, 40, 60, 150
"""Orders: at first, brought over by a round, not copied at the rehearsal, lost with west, and written to east."""
MIRRORED = FIRST + ROUND + REHEARSED
BILLED, READ = 800, 1_180
"""How far billing has read on west, at first and on the day: further than the mirror was copied."""
FAILED, BLOCKED, SOME_FAILED = 1, 7, 8
OTHERS = "*/west/*"


def order(first: int, count: int, *, on: str, what: str = "orders") -> None:
    """Let so many orders, or payments, come in."""
    with (WORKSPACE / "new.jsonl").open("w", encoding="utf-8") as file:
        for number in range(first, first + count):
            file.write(json.dumps({"id": f"{what}-{number}", "cents": number * 37 % 9_900}) + "\n")
    run("topic", "produce", f"topic/{on}/shop:{what}", "--input", "new.jsonl", "--key-field", "id")


def bill(records: int, *, on: str) -> list[int]:
    """Let billing read so many orders, and return their offsets."""
    billed = WORKSPACE / "billed.jsonl"
    billed.unlink(missing_ok=True)
    into = ("--out", billed.name)
    run("topic", "consume", f"topic/{on}/shop:orders", "--group", "billing", "--max", f"{records}", *into)
    return [json.loads(line)["offset"] for line in billed.read_text(encoding="utf-8").splitlines()]


def committed(cluster: str) -> int:
    """Show where billing is on a cluster, and return it."""
    run("group", "describe", cluster, "billing")
    (place,) = read("group", "describe", cluster, "billing")["offsets"]
    offset: int = place["committed"]
    return offset


def mirrors() -> dict[str, str]:
    """Return the state of each mirror of both clusters."""
    run("mirror", "list")
    return {row["address"]: row["mirror_status"] for row in read("mirror", "list")["mirrors"]}


def state(wanted: dict[str, str]) -> None:
    found = mirrors()
    require(that=found == wanted, otherwise=f"mirrors are {found}, not {wanted}")


def main() -> int:
    return STORY.tell(CHAPTERS)


def begin() -> None:
    chapter("1. West takes orders and payments; the group billing has read 800 orders")
    STORY.begin("manifests")
    run("apply", "--yes")
    order(0, FIRST, on="west")
    order(0, 500, on="west", what="payments")
    bill(BILLED, on="west")


def link() -> None:
    chapter("2. A pull request links east to west, both ways: mirrors are made and copied, and take no other records")
    say(f"   + manifests/{LINK}")
    shutil.copy(STORY.here / "pull-requests" / LINK, WORKSPACE / "manifests")
    run("plan")
    run("apply", "--yes")
    settled()
    run("verify", WEST, ORDERS)
    run("topic", "produce", EAST, "--input", "new.jsonl", expect=FAILED)


def keep_up() -> None:
    chapter("3. `run` keeps east in step: records, and where billing is")
    order(FIRST, ROUND, on="west")
    run("run", "--once", "--only", "mirror")
    run("verify", WEST, ORDERS)
    require(that=committed("east") == BILLED, otherwise="billing is elsewhere on east")


def rehearse() -> None:
    chapter("4. The rehearsal: a pull request says `failed-over`, the plan says what would be lost, and it is closed")
    order(FIRST + ROUND, REHEARSED, on="west")
    edit(LINK, "state: mirroring", "state: failed-over")
    run("plan", "--detailed-exitcode", expect=BLOCKED, shows=f"{REHEARSED} offsets")
    edit(LINK, "state: failed-over", "state: mirroring")
    settled()
    state({ORDERS: "ACTIVE", PAYMENTS: "ACTIVE"})
    run("run", "--once", "--only", "mirror")


def lose_west() -> None:
    chapter(
        "5. The day: orders are paused for some maintenance, more come in, billing reads most of them; west is gone"
    )
    edit(LINK, "state: mirroring", "state: paused")
    run("apply", "--yes")
    order(MIRRORED, LOST, on="west")
    bill(READ - BILLED, on="west")
    run("run", "--once", "--only", "mirror")
    say("   $ mv .clusters/west away")
    (WORKSPACE / ".clusters" / "west").rename(WORKSPACE / "away")
    run("plan", expect=FAILED)
    run("run", "--once", "--only", "mirror", expect=SOME_FAILED)


def fail_over() -> None:
    chapter("6. Failed over by command; billing goes on at the mirror's end, not beyond it, and misses nothing of east")
    run("mirror", "failover", ORDERS, PAYMENTS, "--yes")
    require(that=committed("east") == MIRRORED, otherwise="billing was not held to the end of the mirror")
    order(5_000, MEANWHILE, on="east")
    offsets = bill(MEANWHILE, on="east")
    expected = list(range(MIRRORED, MIRRORED + MEANWHILE))
    require(that=offsets == expected, otherwise=f"billing read {offsets[:1]} … {offsets[-1:]}")


def tell_the_files() -> None:
    chapter("7. The next morning: drift lists what was done, with the patch that tells the files")
    run("drift", "--exclude", OTHERS, shows="pending")
    patch = run("drift", "--exclude", OTHERS, "--accept", ORDERS, "--accept", PAYMENTS, shows="failed-over")
    say("   $ git apply accept.patch")
    subprocess.run(["git", "apply", "-"], cwd=WORKSPACE, input=patch, text=True, encoding="utf-8", check=True)
    run("apply", "--yes", "--exclude", OTHERS)
    run("plan", "--detailed-exitcode", "--exclude", OTHERS, shows="nothing to do")


def come_back() -> None:
    chapter(
        "8. West is back, with orders that east never saw: the plan says how many go, and waits until that is allowed"
    )
    say("   $ mv away .clusters/west")
    (WORKSPACE / "away").rename(WORKSPACE / ".clusters" / "west")
    run("verify", WEST, EAST, expect=FAILED)
    for _ in range(2):
        edit_first("state: failed-over", "state: reversed")
    run("plan", "--detailed-exitcode", expect=BLOCKED, shows=f"{LOST} offsets")
    allow = [
        word for address in (WEST_ORDERS, WEST_PAYMENTS) for word in ("--allow", f"truncate-and-restore:{address}")
    ]
    run("apply", "--yes", *allow)
    run("run", "--once", "--only", "mirror")
    run("verify", WEST, EAST)
    state({ORDERS: "STOPPED", PAYMENTS: "STOPPED", WEST_ORDERS: "ACTIVE", WEST_PAYMENTS: "ACTIVE"})
    settled()


def go_home() -> None:
    chapter("9. Roles as they were: `mirroring` swaps them back without loss, and west takes orders again")
    for _ in range(2):
        edit_first("state: reversed", "state: mirroring")
    run("plan", shows="reverse-and-start")
    run("apply", "--yes")
    settled()
    end = MIRRORED + MEANWHILE
    order(9_000, 10, on="west")
    offsets = bill(10, on="west")
    require(that=offsets == list(range(end, end + 10)), otherwise=f"billing goes on at {offsets[:1]}")
    run("run", "--once", "--only", "mirror")
    run("verify", WEST, EAST)


def edit_first(old: str, new: str) -> None:
    """Change the first of several lines that say the same."""
    path = WORKSPACE / "manifests" / LINK
    say(f"   {LINK}: {old} → {new}")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")


CHAPTERS = (begin, link, keep_up, rehearse, lose_west, fail_over, tell_the_files, come_back, go_home)

if __name__ == "__main__":
    sys.exit(main())
