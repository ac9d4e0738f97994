"""`run` as text: a row says of each job what it counts, and nothing of what it does not."""

from __future__ import annotations

import pytest

from reconciler.cli.text.lines import text_of
from reconciler.cli.text.runs_text import upkeep_text
from reconciler.operations.mirrors.mirror_rounds import JobOutcome, Upkeep
from reconciler.providers.protocol import Upkept


@pytest.mark.parametrize(
    ("upkept", "said"),
    [
        (Upkept("topic", 1, bytes=10_342), "migrations west 1 topic - 10.1 KiB"),
        (Upkept("partition", 2, 5, 2048), "migrations west 2 partitions 5 2 KiB"),
        (Upkept("topic", 1), "migrations west 1 topic 0 -"),
    ],
)
def test_a_job_that_writes_bytes_and_counts_no_records_says_so_with_a_dash(upkept: Upkept, said: str) -> None:
    upkeep = Upkeep((), (JobOutcome("migrations", "west", 0.1, upkept),), 0.1)
    row = text_of(upkeep_text(upkeep)).splitlines()[1]
    assert " ".join(row.split()).startswith(said)


def test_where_nothing_is_to_do_it_says_which_mirrors_are_left_out() -> None:
    said = text_of(upkeep_text(Upkeep((), (), 0.1, left={"PAUSED": 2, "STOPPED": 1})))
    assert said.rstrip() == "Nothing to do: 0 jobs, 0 mirrors. Not copied: 3 mirrors (2 PAUSED, 1 STOPPED)."
