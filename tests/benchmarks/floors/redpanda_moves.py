"""The floor of unmounting and mounting: one request each, then polls until it has ended: ADMIN PASSWORD NAME…."""

import sys
import time

import urllib3

ADMIN, PASSWORD, NAMES = sys.argv[1], sys.argv[2], sys.argv[3:]
HEADERS = urllib3.make_headers(basic_auth=f"admin:{PASSWORD}")


def run(verb: str, topics: list[dict[str, object]]) -> None:
    answer = urllib3.request("POST", f"{ADMIN}/v1/topics/{verb}", json={"topics": topics}, headers=HEADERS)
    assert answer.status == 200, answer.data
    number, pause = answer.json()["id"], 0.2
    while urllib3.request("GET", f"{ADMIN}/v1/migrations/{number}", headers=HEADERS).status == 200:
        time.sleep(pause)
        pause = min(2 * pause, 2.0)


run("unmount", [{"topic": name} for name in NAMES])
listed = urllib3.request("GET", f"{ADMIN}/v1/topics/mountable", headers=HEADERS).json()["topics"]
places = {each["topic"]: each["topic_location"] for each in listed}
run("mount", [{"source_topic_reference": {"topic": places[name]}} for name in NAMES])
