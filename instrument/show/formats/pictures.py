"""Images as files: `TAG/STEP.png`. A picture that is a PNG already is kept byte for byte, another one is decoded."""

from __future__ import annotations

import io
from collections.abc import Iterator

from instrument.codec import image
from instrument.errors import CorruptMessage
from instrument.show.formats.arrays import PICTURE_BYTES, file_names
from instrument.show.formats.job import Job, Written, safe_name
from instrument.values import Image

PNG = b"\x89PNG\r\n\x1a\n"


def export(job: Job) -> Iterator[Written]:
    """Write each image."""
    for kind, tags in job.tags.items():
        if kind != "image":
            job.leave_out(kind, "they are no pictures")
            continue
        for tag in tags:
            count = _write(job, tag)
            yield Written(job.folder.join(safe_name(tag)), kind, tag, count)


def _write(job: Job, tag: str) -> int:
    """Write the pictures of a tag; return their number."""
    job.on_tag(tag)
    points = job.run.images(tag, job.superseded)
    count = 0
    for index, name in enumerate(file_names(points, ".png")):
        try:
            data = png(points.decode(index))
        except CorruptMessage as error:
            job.left_out.append(str(error))
            continue
        with job.folder.binary(safe_name(tag), name) as file:
            file.write(data)
        count += 1
    return count


def png(picture: Image) -> bytes:
    """Return a picture as a PNG file.

    Raises:
        CorruptMessage: it cannot be decoded.
    """
    if picture.data.startswith(PNG):
        return picture.data
    from PIL import Image as pillow

    pixels = image.pixels(picture, PICTURE_BYTES)
    file = io.BytesIO()
    pillow.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, format="PNG")
    return file.getvalue()
