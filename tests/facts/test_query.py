"""Expressions over runs."""

from __future__ import annotations

import pytest

from instrument.facts.query import Query, WrongExpression, resolve, sort_key

ROW = {
    "run": "a", "train.rate": 0.1, "train.optimizer": "Adam", "eval.accuracy": 0.9, "custom.a key": "x", "custom.n": 3,
    "dataset.batch_size": 8, "train.batch_size": 16, "custom.flag": True, "custom.none": None,
}  # fmt: skip
COLUMNS = [*ROW, "train.absent"]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("rate < 0.2", True),
        ("train.rate < 0.2 and accuracy > 0.95", False),
        ("rate < 0.05 or accuracy > 0.5", True),
        ("not rate < 0.2", False),
        ("0.05 < rate < 0.2", True),
        ("0.05 < rate < 0.1", False),
        ("optimizer == 'Adam'", True),
        ("optimizer in ('SGD', 'Adam')", True),
        ("optimizer not in ['SGD']", True),
        ("'da' in optimizer", True),
        ("`a key` == 'x'", True),
        ("`custom.a key` != 'y'", True),
        ("n * 2 + 1 - n / 3 == 6", True),
        ("-n == -3 and +n == 3", True),
        ("batch_size == 16", True),
        ("dataset.batch_size == 8", True),
        ("n / 0 == 1", False),
        ("absent == 1", False),
        ("absent != 1", False),
        ("absent < 1 or n > 2", True),
        ("has(n)", True),
        ("has(absent) or has(none)", False),
        ("optimizer < 5", False),
        ("optimizer * 100000000 == 1", False),
        ("flag", True),
        ("n", True),
        (" n == 3 ", True),
    ],
)
def test_an_expression_holds_or_not(text: str, holds: bool) -> None:
    """Names are columns or the ends of one; what is missing, or of another type, makes a comparison false."""
    assert Query(text, COLUMNS)(ROW) is holds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__import__('os').system('x')", "the only function is has(NAME)"),
        ("n.__class__", "no run has 'n.__class__'"),
        ("(1).real", "real' is no name"),
        ("[x for x in n]", "is not understood"),
        ("lambda: n", "is not understood"),
        ("n ** 9", "'n ** 9' is not understood"),
        ("~n", "'~n' is not understood"),
        ("n[0]", "is not understood"),
        ("(n := 1)", "is not understood"),
        ("f'{n}'", "is not understood"),
        ("n is None", "`is` is not known"),
        ("n == None", "neither a number nor a text"),
        ("n == 1j", "neither a number nor a text"),
        ("has(n, n)", "the only function is has(NAME)"),
        ("n = 1", "is no expression"),
        ("n <", "is no expression"),
        ("", "is no expression"),
        ("a\0b", "is no expression"),
        ("(" * 500 + "n" + ")" * 500, "is no expression"),
        ("n" * 3000, "3000 characters"),
        ("nothing > 1", "no run has 'nothing'; there are: custom.a key, custom.flag"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    """Everything beyond the grammar, whatever it would do; the message quotes it."""
    with pytest.raises(WrongExpression) as caught:
        Query(text, COLUMNS)
    assert words in str(caught.value)


def test_a_name_means_the_first_section_and_the_shortest_way() -> None:
    """Training before evaluation, custom and data set; a whole name before an end."""
    columns = ["dataset.size", "custom.size", "eval.size", "train.a.size", "train.size", "size.x"]
    assert [resolve(name, columns) for name in ("size", "a.size", "custom.size", "x")] == [
        "train.size", "train.a.size", "custom.size", "size.x",
    ]  # fmt: skip


def test_values_of_several_types_have_an_sort_key() -> None:
    """Numbers, then NaN, then texts; lists as text."""
    values = ["b", 2, float("nan"), "a", 1.5, True, [1]]
    assert [str(value) for value in sorted(values, key=sort_key)] == ["True", "1.5", "2", "nan", "[1]", "a", "b"]
