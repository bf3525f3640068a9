"""Checks of options that several rooms have: each returns the value, or says what was given and what is expected."""

from __future__ import annotations

import operator
import os
from typing import SupportsIndex

from instrument import paths


def check_int(name: str, value: object, least: int) -> int:
    """Return a Python or NumPy integer. Raise `TypeError` for another type or a bool, `ValueError` if too small."""
    try:
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        message = f"{name} is {value!r} of type {type(value).__name__}; expected an int of at least {least}."
        raise TypeError(message) from None
    if number < least:
        raise ValueError(f"{name} is {number}; expected an int of at least {least}.")
    return number


def check_bool(name: str, value: object) -> bool:
    """Return True or False; raise `TypeError` for anything else."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; expected True or False.")
    return value


def check_directory(name: str, value: object) -> str:
    """Return the absolute path of a directory option. Raise `TypeError` or `ValueError` for what is no path."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} is a {type(value).__name__}; expected the path of a directory.")
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError(f"{name} is {path!r}; expected the path of a directory.")
    if paths.is_url(path):
        raise ValueError(f"{name} is the URL {path!r}; expected the path of a directory: {paths.url_hint(path)}.")
    return os.path.abspath(os.path.expanduser(path))
