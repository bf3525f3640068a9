"""What the files of a run tell of where it came from, put together."""

from __future__ import annotations

from dataclasses import replace

from instrument.codec import lineage as lineage_codec
from instrument.errors import CorruptMessage
from instrument.runs.contents import Contents
from instrument.runs.presented import RunLineage

_HPARAMS = "hparams"


def put_together(contents: Contents) -> RunLineage:
    """By key, what was told last; of custom lineage and TensorBoard's hyper-parameters all names together.

    A message that cannot be parsed is left out and noted as damage.
    """
    result = RunLineage()
    for frame, found in contents.told:
        if isinstance(found, dict):
            result[_HPARAMS] = {**result.get(_HPARAMS, {}), **found}
            continue
        try:
            fields = lineage_codec.to_dict(found)
        except CorruptMessage as error:
            contents.note(replace(frame, reason=str(error)))
            continue
        key = lineage_codec.SECTIONS[found.what]
        result[key] = {**result.get(key, {}), **fields} if key == "custom" else fields
    return result
