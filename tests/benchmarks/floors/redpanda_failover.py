"""The floor of a failover: one request for each topic, then polls until all are over: ADMIN PASSWORD LINK NAME…."""

import sys
import time

import urllib3

ADMIN, PASSWORD, LINK, NAMES = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
HEADERS = urllib3.make_headers(basic_auth=f"admin:{PASSWORD}") | {"Connect-Protocol-Version": "1"}


def call(method: str, **content: str) -> dict[str, list[dict[str, dict[str, str]]]]:
    url = f"{ADMIN}/redpanda.core.admin.v2.ShadowLinkService/{method}"
    answer = urllib3.request("POST", url, json=content, headers=HEADERS)
    assert answer.status == 200, answer.data
    return dict(answer.json())


def count_over() -> int:
    shadows = {
        str(each["name"]): each["status"] for each in call("ListShadowTopics", shadowLinkName=LINK)["shadowTopics"]
    }
    return sum(shadows[name]["state"] == "SHADOW_TOPIC_STATE_FAILED_OVER" for name in NAMES if name in shadows)


for topic in NAMES:
    call("FailOver", name=LINK, shadowTopicName=topic)
pause = 0.2
while count_over() < len(NAMES):
    time.sleep(pause)
    pause = min(2 * pause, 2.0)
