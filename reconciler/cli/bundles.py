"""Options that travel together: a command takes a bundle, its command line shows the options in it."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from reconciler.cli.again import remember_typed
from reconciler.cli.console import out, silence
from reconciler.errors import InterruptedRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def bundled(body: Callable[..., None]) -> Callable[..., None]:
    """Make a command of `body`: parameters that are bundles (dataclasses of options) become their options."""
    hints = get_type_hints(body, include_extras=True)
    bundles = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}
    parameters = list(_parameters(body, hints, bundles))

    def run(**given: Any) -> None:
        filled = {name: _filled(kind, given) for name, kind in bundles.items()}
        remember_typed(filled.values())
        _guarded(body, filled | given)

    run.__doc__ = body.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__dict__["__signature__"] = inspect.Signature(parameters)
    return run


def _parameters(
    body: Callable[..., None], hints: dict[str, Any], bundles: dict[str, type]
) -> Iterator[inspect.Parameter]:
    # What is particular to a command stands before what every command has.
    for name, parameter in inspect.signature(body).parameters.items():
        if name not in bundles:
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
    for kind in bundles.values():
        inside = get_type_hints(kind, include_extras=True)
        for each in fields(kind):
            default = inspect.Parameter.empty if each.default is MISSING else each.default
            yield inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=inside[each.name]
            )


def _filled(kind: type, given: dict[str, Any]) -> Any:
    """Take a bundle's values out of what typer gives."""
    return kind(**{each.name: given.pop(each.name) for each in fields(kind)})


def _guarded(body: Callable[..., None], values: dict[str, Any]) -> None:
    """Run a command; what typer would turn into an exit code by itself is turned into ours here."""
    try:
        body(**values)
    except (KeyboardInterrupt, EOFError) as error:
        raise InterruptedRunError("Interrupted", hint="Nothing was started") from error
    except BrokenPipeError as error:
        # Whoever read our output has what it wanted.
        silence(out().stream)
        raise typer.Exit from error
