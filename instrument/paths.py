"""Paths that name nothing here: URLs, of which makedirs would make a folder called `s3:`, and absent files."""

from __future__ import annotations

import os
import re

#: With one slash too, which is what `pathlib` leaves of two. A drive of Windows has one letter.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_url(path: str) -> bool:
    """Return True for a URL, such as s3://bucket/run, unless a directory or file of that name is there."""
    return _URL.match(path) is not None and not os.path.exists(path)


def url_hint(path: str) -> str:
    """Return what to do about a URL, as the end of a message."""
    if path.lower().startswith("file:/"):
        return "give the path without file://"
    return "take a local directory and copy it there or back, or mount the storage and give the path of the mount"


def absent(path: str) -> str:
    """Return why there is nothing at a path."""
    return "is a broken link" if os.path.islink(path) else "does not exist"
