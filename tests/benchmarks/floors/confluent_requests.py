"""The floor of a plan: send the GETs of a file and parse the answers: FILE has rows of ORIGIN, PATH, KEY, SECRET."""

import json
import sys
from pathlib import Path

import urllib3

for origin, path, key, secret in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
    headers = urllib3.make_headers(basic_auth=f"{key}:{secret}")
    answer = urllib3.request("GET", origin + path, headers=headers, timeout=600)
    assert answer.status in {200, 404}, answer.data
    answer.json()
