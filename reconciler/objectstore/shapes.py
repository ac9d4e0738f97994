"""Whether a JSON value is of the types it is written with: hands may have been there.

A shape is a type; a tuple of shapes, any of which will do (`None` stands for null); `[shape]`, a list of such;
`{str: shape}`, an object with any names; `{"name": shape, …}`, an object with these names and maybe others, where a
name that ends in `?` may be absent.
"""

from __future__ import annotations

from typing import Any


def check_shape(value: Any, shape: Any, at: str = "") -> None:
    """Refuse a value of another shape; `at` says where it stands.

    Raises:
        TypeError: Says what is there, and where.
    """
    match shape:
        case tuple():
            if not any(_fits(value, one) for one in shape):
                raise _wrong(value, at)
        case [below]:
            if type(value) is not list:
                raise _wrong(value, at)
            for number, each in enumerate(value):
                check_shape(each, below, f"{at}[{number}]")
        case dict():
            _check_object(value, shape, at)
        case _:
            if value is not shape and type(value) is not shape:
                raise _wrong(value, at)


def check_numbers(*values: object) -> None:
    """Refuse what is no whole number; for what is read too often for a shape.

    Raises:
        TypeError: Says what is there.
    """
    if not {int}.issuperset(map(type, values)):
        raise TypeError(f"{next(value for value in values if type(value) is not int)!r:.50} is no whole number")


def check_texts(*values: object) -> None:
    """Refuse what is no text, in the same way.

    Raises:
        TypeError: Says what is there.
    """
    if not {str}.issuperset(map(type, values)):
        raise TypeError(f"{next(value for value in values if type(value) is not str)!r:.50} is no text")


def _check_object(value: Any, shape: dict[Any, Any], at: str) -> None:
    if type(value) is not dict:
        raise _wrong(value, at)
    if str in shape:
        for name, each in value.items():
            check_shape(each, shape[str], f"{at}.{name}")
        return
    for name, below in shape.items():
        bare = name.removesuffix("?")
        if bare in value:
            check_shape(value[bare], below, f"{at}.{bare}")
        elif bare == name:
            raise TypeError(f"{at.lstrip('.') or 'it'} has no {name}")


def _fits(value: Any, shape: Any) -> bool:
    try:
        check_shape(value, shape)
    except TypeError:
        return False
    return True


def _wrong(value: Any, at: str) -> TypeError:
    return TypeError(f"{at.lstrip('.') or 'it'} is {value!r:.50}")
