"""File names for tags."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from instrument.formats.job import safe_name


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("loss", "loss"),
        ("conv1.weight/auto", "conv1.weight%2Fauto"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
        ("..", "%2E%2E"),
        (" a b ", "%20a b%20"),
        ("中文 é", "中文 é"),
        ("50%", "50%25"),
        ("a\nb\0", "a%0Ab%00"),
        ("C:\\x|y*", "C%3A%5Cx%7Cy%2A"),
        ("\u202eabc", "%E2%80%AEabc"),
    ],
)
def test_a_tag_has_a_safe_file_name(tag: str, name: str) -> None:
    """One that can be turned back."""
    assert safe_name(tag) == name
    assert unquote(name) == tag


def test_long_and_empty_tags_have_names_of_their_own() -> None:
    """A cut one ends in a digest, so that two that begin alike differ."""
    names = [safe_name(tag) for tag in ("", "x" * 150, "x" * 151, "x" * 151 + "y", "中" * 200, "/" * 100)]
    assert names[:2] == ["%", "x" * 150]
    assert len(set(names)) == len(names)
    assert all(len(name.encode()) <= 150 for name in names)
    assert names[2][:134] == "x" * 133 + "~"
