"""What a register refuses to read, and to write."""

from __future__ import annotations

import orjson
import pytest

from reconciler.errors import BrokenInvariantError, RetryableError, UnansweredError, UserError
from reconciler.objectstore.base import Stored, Version
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.register import Register

WHOLE = {"format": "reconciler.test/2", "epoch": 1, "nonce": "n", "marks": []}


def read(body: bytes) -> object:
    store = MemoryStore()
    store.put("r", body)
    return Register(store, "r", format="reconciler.test/2").read()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        orjson.dumps({**WHOLE, "format": "reconciler.other/1"}),
        orjson.dumps({**WHOLE, "format": "reconciler.test/x"}),
        orjson.dumps({**WHOLE, "format": None}),
        orjson.dumps({key: value for key, value in WHOLE.items() if key != "epoch"}),
        orjson.dumps({**WHOLE, "marks": "m"}),
        orjson.dumps({**WHOLE, "nonce": 7}),
        orjson.dumps(WHOLE)[:-5],
    ],
)
def test_a_damaged_register_is_named_with_what_to_do(body: bytes) -> None:
    with pytest.raises(UserError, match=r"memory://.*: r cannot be read: .+ Restore it"):
        read(body)


def test_a_register_of_a_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(UserError, match=r"newer version of reconciler \(reconciler.test/3\).*pip install"):
        read(orjson.dumps({**WHOLE, "format": "reconciler.test/3"}))


def test_a_register_of_an_older_version_is_read() -> None:
    assert read(orjson.dumps({**WHOLE, "format": "reconciler.test/1", "x": 1})) is not None


def test_a_value_cannot_stand_in_for_the_frame() -> None:
    register = Register(MemoryStore(), "r", format="reconciler.test/2")
    with pytest.raises(BrokenInvariantError):
        register.swap(None, {"epoch": 7})


def test_an_epoch_never_goes_back() -> None:
    register = Register(MemoryStore(), "r", format="reconciler.test/2")
    held = register.swap(None, {}, epoch=5)
    with pytest.raises(BrokenInvariantError):
        register.swap(held, {}, epoch=4)


class _Gone(MemoryStore):
    """Takes a write without an answer; from then on it cannot be read either."""

    is_gone = False

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        super().swap(key, body, expected=expected)
        self.is_gone = True
        raise UnansweredError("no answer", hint="Run it again.")

    def get(self, key: str) -> Stored | None:
        if self.is_gone:
            raise RetryableError("no way to it", hint="Run it again.")
        return super().get(key)


def test_a_write_without_an_answer_stays_one_where_it_cannot_be_read_back() -> None:
    register = Register(_Gone(), "r", format="reconciler.test/1")
    with pytest.raises(UnansweredError, match="no way to it"):
        register.update(lambda _: {"value": 1}, mark="m", patience_s=0.1)
