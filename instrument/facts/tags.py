"""Choose tags by patterns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from instrument.runs.frames import matches
from instrument.runs.run import Run
from instrument.wording import nearest, quoted, quoted_list

_GLOB = frozenset("*?[")


@dataclass(frozen=True)
class TagFilter:
    """Chooses the tags that match one of `include`, or any if that is empty, and none of `exclude`.

    A pattern matches a tag that is called so, and as a glob: `*` stands for any characters, `/` among them.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def __call__(self, tags: Iterable[str]) -> list[str]:
        """Return the tags that match, in their order."""
        return [
            tag for tag in tags if self._is_included(tag) and not any(matches(tag, pattern) for pattern in self.exclude)
        ]

    def _is_included(self, tag: str) -> bool:
        return not self.include or any(matches(tag, pattern) for pattern in self.include)

    @property
    def takes_all(self) -> bool:
        """True if no pattern was given."""
        return not self.include and not self.exclude

    def no_match(self, run: Run, tags: Iterable[str]) -> str:
        """Return the message that none of a run's tags matches, with the first few of them."""
        names = sorted(set(tags))
        if len(self.include) == 1 and not self.exclude and not _GLOB.intersection(self.include[0]):
            return f"run {run.name!r} has no tag {quoted(self.include[0])}; {nearest(self.include[0], names)}"
        shown = quoted_list(names) or "none at all"
        wanted = " or ".join(map(quoted, self.include)) or "all"
        without = f" without {' and '.join(map(quoted, self.exclude))}" if self.exclude else ""
        return f"run {run.name!r} has no tag that matches {wanted}{without}; it has {shown}"


#: Takes every tag.
ALL_TAGS = TagFilter()
