"""The rows of all outputs: the types of what `facts` returns, with the field names of docs/reference/output.md.

A row holds what JSON has: None for what is not known, and NaN as a float.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, final

#: Any row, for what lays out or prints all of them.
Row = Mapping[str, object]


class FileFacts(TypedDict):
    """A file of a run, and the recorder that wrote it."""

    file: str
    bytes: int
    device: int
    host: str


class Summary(TypedDict):
    """The points of one tag and writer."""

    tag: str
    device: int
    host: str
    points: int
    superseded_points: int
    first_step: int
    last_step: int
    last_wall_time: float


class NonFinite(TypedDict):
    """Counts of numbers that are not finite, and the step of the first of them."""

    nan_count: int
    positive_infinity_count: int
    negative_infinity_count: int
    first_nonfinite_step: int | None


class NumberSummary(Summary, NonFinite):
    """The same of numbers: the ends, the extremes but NaN with their first steps, and what is not finite."""

    first: float
    last: float
    min: float | None
    min_step: int | None
    max: float | None
    max_step: int | None


class Missing(TypedDict):
    """What is missing of a run, with the fields of `Gap` and of `Damage`, whose path is the `file`."""

    gaps: list[dict[str, object]]
    damage: list[dict[str, object]]


@final
class Overview(Missing):
    """A run without its points."""

    run: str
    path: str
    ranks: list[int]
    state: str
    files: list[FileFacts]
    tags: dict[str, list[Summary]]
    has_profile: bool
    lineage: dict[str, dict[str, object]]


class Listing(TypedDict):
    """A run in one row."""

    run: str
    path: str
    ranks: list[int]
    state: str
    tags: dict[str, int]
    first_step: int | None
    last_step: int | None
    last_wall_time: float | None
    superseded_points: int
    nonfinite_points: int
    first_nonfinite_step: int | None
    missing_events: int
    damaged_places: int
    unfinished_ends: int


class ValueFacts(TypedDict, total=False):
    """A value: a number or a text itself, of anything larger its size and extremes; or why it is damaged."""

    value: float
    width: int
    height: int
    channels: int
    mapping: str
    bytes: int
    dtype: str
    shape: list[int]
    min: float | None
    max: float | None
    nan_count: int
    count: int
    mean: float
    positive_infinity_count: int
    negative_infinity_count: int
    nodes: int
    text: str
    error: str


class PointFacts(ValueFacts):
    """A point of a series."""

    step: int
    wall_time: float
    device: int
    host: str
    superseded: bool


class SeriesFacts(TypedDict):
    """All points of a kind and tag; `superseded_points` counts those that are left out."""

    kind: str
    tag: str
    superseded_points: int
    values: list[PointFacts]


@final
class RunPoints(Missing):
    """The series of a run."""

    run: str
    path: str
    series: list[SeriesFacts]


class Best(TypedDict):
    """The best value of a series and its first step, None if all values are NaN."""

    direction: str
    best: float | None
    best_step: int | None


class Compared(Best, NonFinite):
    """A tag and writer of one run in a comparison."""

    tag: str
    run: str
    path: str
    device: int
    host: str
    points: int
    last: float
    last_step: int


class Setting(TypedDict):
    """The value of a hyper-parameter in one run, None if that has none."""

    run: str
    path: str
    name: str
    value: object


class Extent(TypedDict):
    """The range of a metric over a landscape; `holes` counts what is not finite by its name."""

    lowest: float | None
    highest: float | None
    holes: dict[str, int]


class LandscapeFacts(TypedDict):
    """A landscape without its grid; points and checkpoints have the fields of `surface.Point` and `Checkpoint`."""

    tag: str
    numbers: list[int]
    columns: int
    rows: int
    x: list[float]
    y: list[float]
    lowest: dict[str, float] | None
    highest: dict[str, float] | None
    convergence: dict[str, float] | None
    holes: dict[str, int]
    explained: list[float]
    checkpoints: list[dict[str, float]]
    metrics: dict[str, Extent]
    metadata: dict[str, object]


#: The keys that the facts of a value may have.
VALUE_FIELDS = tuple(ValueFacts.__annotations__)
