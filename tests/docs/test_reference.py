"""The reference says what the commands say."""

from __future__ import annotations

from tests.docs import reference


def test_the_reference_of_the_command_line_is_what_the_commands_say() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "write it anew: make schemas"
