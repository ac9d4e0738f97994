from __future__ import annotations

from reconciler.manifests.positions import Spot, find_spots

TEXT = """\
# nothing yet
---
---
a: 1
"quoted key": {b: [x, {c: y}], d: &anchor z}
list:
  - one
  -   two: 2
      three: 3
  - - nested
again: *anchor
a: twice
--- second
...
---
last: 1
"""


def test_every_key_and_every_entry_has_its_place() -> None:
    first, second, third = find_spots(TEXT.encode())
    assert first == {
        (): Spot(4, 1),
        ("a",): Spot(4, 1),
        ("quoted key",): Spot(5, 1),
        ("quoted key", "b"): Spot(5, 16),
        ("quoted key", "b", 0): Spot(5, 20),
        ("quoted key", "b", 1): Spot(5, 23),
        ("quoted key", "b", 1, "c"): Spot(5, 24),
        ("quoted key", "d"): Spot(5, 32),
        ("list",): Spot(6, 1),
        ("list", 0): Spot(7, 5),
        ("list", 1): Spot(8, 7),
        ("list", 1, "two"): Spot(8, 7),
        ("list", 1, "three"): Spot(9, 7),
        ("list", 2): Spot(10, 5),
        ("list", 2, 0): Spot(10, 7),
        ("again",): Spot(11, 1),
    }
    assert second == {(): Spot(13, 5)}
    assert third == {(): Spot(16, 1), ("last",): Spot(16, 1)}


def test_places_are_known_up_to_where_a_file_breaks() -> None:
    (first,) = find_spots(b"a: 1\nb: {c: 2\nd: 3\n")
    assert first[("a",)] == Spot(1, 1)
    assert first["b", "c"] == Spot(2, 5)


def test_columns_count_characters() -> None:
    (first,) = find_spots("ü: {ä: 1, b: 2}\n".encode())
    assert first["ü", "b"] == Spot(1, 11)
