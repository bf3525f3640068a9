"""Write files that are whole or absent."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import IO, Any


@contextlib.contextmanager
def replacing(path: str, mode: str = "xb", **options: Any) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` that gets its name at the end, so that nobody sees half of it.

    A file at `path` is replaced; it stays as it was if the body raises. `mode` and `options` are those of `open`.

    Raises:
        OSError: it cannot be written; `filename` is `path`.
    """
    temporary = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.part")
    try:
        with open(temporary, mode, **options) as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        if error.filename == temporary:
            error.filename = path  # the user knows the file by its own name
        raise
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
