"""Our `dataclass` beside the standard library's: what its objects do is the same."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar

import pytest

from reconciler.runtime import dataclass as ours

OPTIONS = {
    "plain": {},
    "slots": {"slots": True},
    "frozen": {"frozen": True},
    "frozen, slots": {"frozen": True, "slots": True},
    "frozen, slots, in order": {"frozen": True, "slots": True, "order": True},
    "named": {"frozen": True, "slots": True, "kw_only": True},
    "without comparisons": {"eq": False},
    "without repr": {"repr": False},
}


def both(body: Callable[[Any], type], **options: bool) -> tuple[Any, Any]:
    """Define a class with our `dataclass`, and with the standard library's."""
    return body(ours.dataclass(**options)), body(dataclasses.dataclass(**options))


def define_point(decorate: Any) -> type:
    @decorate
    class Point:
        """A point."""

        count: ClassVar[int] = 0
        x: int
        y: int = 2
        tags: list[str] = dataclasses.field(default_factory=list)
        note: str = dataclasses.field(default="-", compare=False, repr=False)
        made: int = dataclasses.field(default=5, init=False)
        seen: list[int] = dataclasses.field(default_factory=list, init=False, hash=False)

    return Point


def define_children(decorate: Any) -> type:
    @decorate
    class Base:
        x: int

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("below zero")

    @decorate
    class Child(Base):
        y: int = 3

        def __repr__(self) -> str:
            return "a child"

        def __hash__(self) -> int:
            return 7

    return Child


def told(work: Callable[[], object]) -> object:
    """Return a result, or that there is none."""
    try:
        return work()
    except (TypeError, AttributeError, ValueError):
        return "refused"


def behave(kind: Any) -> list[object]:
    """Do with a class what can be done with a data class, and return what came of it."""
    one, same, other = kind(x=1), kind(x=1), kind(x=1, y=9)
    comparisons = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
    results = [told(partial(c, one, o)) for c in comparisons for o in (same, other, 1)]
    results += [told(lambda: hash(one) == hash(same)), repr(one).rpartition("<locals>.")[2].partition(" at ")[0]]
    results += [told(lambda: kind(1, 2)), told(kind), told(lambda: kind(x=1, z=2)), told(lambda: kind(-1))]
    results += [dataclasses.asdict(one), [part.name for part in dataclasses.fields(kind)], kind.__match_args__]
    changed = dataclasses.replace(one, y=8)
    results += [dataclasses.asdict(changed), dataclasses.asdict(copy.copy(changed)), copy.deepcopy(one) == one]
    results += [told(lambda: setattr(changed, "x", 4)), told(lambda: delattr(changed, "x"))]
    results += [told(lambda: setattr(changed, "unknown", 4)), hasattr(one, "__dict__")]
    return [type(value).__name__ if isinstance(value, kind) else value for value in results]


@pytest.mark.parametrize("body", [define_point, define_children])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_objects_behave_as_those_of_the_standard_library(body: Callable[[Any], type], options: dict[str, bool]) -> None:
    mine, theirs = both(body, **options)
    assert behave(mine) == behave(theirs)


def test_each_object_has_lists_of_its_own() -> None:
    kind, _ = both(define_point, slots=True)
    one, two = kind(1), kind(1)
    one.tags.append("x")
    one.seen.append(1)
    assert (two.tags, two.seen) == ([], [])


@ours.dataclass(frozen=True, slots=True)
class Sent:
    """Frozen, with slots: `pickle` must restore it without assignments."""

    name: str
    numbers: tuple[int, ...] = ()


@ours.dataclass(frozen=True)
class Computed:
    """Frozen, without slots: cached properties write into its dictionary."""

    name: str

    @cached_property
    def length(self) -> int:
        return len(self.name)


@pytest.mark.parametrize("value", [Sent("a", (1, 2)), Computed("abc")])
def test_objects_are_the_same_after_pickle(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - made here


def test_a_cached_property_of_a_frozen_object_is_computed_once() -> None:
    value = Computed("abc")
    assert value.length == 3
    assert vars(value) == {"name": "abc", "length": 3}


def test_init_is_compiled_for_the_first_object_only() -> None:
    kind, _ = both(define_point)
    deferred = kind.__init__
    kind(1)
    compiled = kind.__init__
    kind(2)
    assert deferred is not compiled
    assert kind.__init__ is compiled
