"""Words of messages: lists of names and numbers, and what a misspelt name may have meant."""

from __future__ import annotations

import pytest

import instrument
from instrument.show.cli import main
from instrument.wording import closest, did_you_mean, listed, ranges


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("sho", ["ls", "show", "scalars"], "show"),
        ("scaler", ["show", "scalars"], "scalars"),
        ("lr", ["loss", "learning_rate"], "learning_rate"),
        (
            "lr",
            ["train.algorithm.loss", "train.hyper_parameters.learning_rate"],
            "train.hyper_parameters.learning_rate",
        ),
        ("acc", ["loss/auto", "eval/accuracy/auto"], "eval/accuracy/auto"),
        ("SummaryColector", ["SummaryRecord", "SummaryCollector"], "SummaryCollector"),
        ("Loss", ["x", "loss"], "loss"),
    ],
)
def test_slips_and_abbreviations_are_understood(word: str, known: list[str], meant: str) -> None:
    """Letters that lack or are too many, initials, and the beginning of a part of the name."""
    assert closest(word, known) == [meant]


def test_nothing_is_proposed_where_nothing_is_near() -> None:
    """A wrong proposal is worse than none."""
    assert closest("batch_size", ["activities", "with_stack"]) == []
    assert did_you_mean("x", ["show"]) == ""
    assert closest("x" * 10_000, ["y" * 10_000, "x" * 10_000]) == []


def test_a_name_of_the_package() -> None:
    """The error proposes the public name that is near; a private one has no proposal."""
    with pytest.raises(AttributeError, match="no attribute 'SummaryColector'; did you mean 'SummaryCollector'"):
        _ = instrument.SummaryColector
    with pytest.raises(AttributeError, match=r"no attribute '_nope'$"):
        _ = instrument._nope


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["sho"], "instrument: error: there is no verb 'sho'; did you mean 'show'?"),
        (["scaler"], "instrument: error: there is no verb 'scaler'; did you mean 'scalars'?"),
        (["xyzzy"], "instrument: error: there is no verb 'xyzzy'; there are ls, show, "),
        (["scalars", "x", "--sort", "bets"], "invalid choice: 'bets' "),
        (["scalars", "x", "--sort", "bets"], "; did you mean 'best'?"),
        (["scalars", "x", "--tags", "y"], "unrecognized arguments: --tags y; did you mean '--tag'?"),
    ],
)
def test_verbs_and_options(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong call names what is near, after the usage of the verb itself."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    usage = "usage: instrument scalars " if words[0] == "scalars" else "usage: instrument [-h]"
    assert err.startswith(usage)


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([], ""),
        ([0], "0"),
        ([0, 1], "0, 1"),
        (range(64), "0 to 63"),
        ([9, 2, 3, 4, 0, 3], "0, 2 to 4, 9"),
        (range(0, 2000, 2), "0, 2, 4, 6, 8, 10, 12, 14 and others up to 1998"),
    ],
)
def test_numbers_take_one_short_line(numbers: list[int], shown: str) -> None:
    """Runs of numbers are their ends, and of very many the first are named."""
    assert ranges(numbers) == shown


@pytest.mark.parametrize(
    ("words", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more")]
)
def test_a_long_list_ends_in_a_count(words: list[str], text: str) -> None:
    """Of those that are left out."""
    assert listed(words, 2) == text
