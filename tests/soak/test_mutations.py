"""The tests notice where code that protects data does not do so any more."""

from __future__ import annotations

import pytest

from tests.soak.mutation import ROOT, Mutation, copied, is_noticed, mutations

LEAST = 40
MISSED = 2
"""How many of the changes may go unnoticed at most."""


@pytest.mark.parametrize("mutation", mutations(), ids=str)
def test_what_is_changed_is_there_once(mutation: Mutation) -> None:
    assert mutation.is_in(ROOT)
    assert mutation.old != mutation.new
    assert all((ROOT / path).exists() for path in mutation.tests)


@pytest.mark.soak
def test_make_test_notices_code_that_protects_no_more() -> None:
    every = mutations()
    with copied() as tree:
        missed = [str(each) for each in every if not is_noticed(each, tree)]
    assert len(every) >= LEAST
    assert len(missed) <= MISSED, missed
