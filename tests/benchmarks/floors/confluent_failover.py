"""The floor of a failover: batches of 100 names, then polls until all stopped: CLUSTER KEY SECRET NAME…."""

import sys
import time

import urllib3

CLUSTER, KEY, SECRET, NAMES = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
HEADERS = urllib3.make_headers(basic_auth=f"{KEY}:{SECRET}")


def count_stopped() -> int:
    answer = urllib3.request("GET", f"{CLUSTER}/links/-/mirrors", headers=HEADERS).json()
    return sum(row["mirror_status"] == "STOPPED" for row in answer["data"])


for begin in range(0, len(NAMES), 100):
    body = {"mirror_topic_names": NAMES[begin:][:100]}
    sent = urllib3.request("POST", f"{CLUSTER}/links/from-east/mirrors:failover", json=body, headers=HEADERS)
    assert not any(row["error_code"] for row in sent.json()["data"]), sent.data
pause = 0.2
while count_stopped() < len(NAMES):
    time.sleep(pause)
    pause = min(2 * pause, 2.0)
