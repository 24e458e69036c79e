import pytest

from paddleport import errors
from paddleport.errors import MissingExtraError, PaddleportError, ServerError, UsageError


def test_a_message_says_what_was_expected_what_came_and_what_to_do():
    error = PaddleportError("It failed", expected=[4], got="3 …", todo="Do better")
    assert str(error) == "It failed: expected [4], got 3 …. Do better."
    assert (error.what, error.expected, error.got, error.todo) == ("It failed", [4], "3 …", "Do better")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({}, "It failed."),
        ({"got": 0}, "It failed: got 0."),
        ({"got": ""}, "It failed: got ."),
        ({"expected": "more"}, "It failed: expected more."),
        ({"todo": "Do better"}, "It failed. Do better."),
        ({"got": "a sentence of a library."}, "It failed: got a sentence of a library."),
    ],
)
def test_what_is_not_known_is_left_out(said, sentence):
    assert str(PaddleportError("It failed", **said)) == sentence


def test_a_huge_value_is_cut_in_the_message():
    message = str(PaddleportError("It failed", got="x" * 1_000_000))
    assert len(message) < 400
    assert message.endswith("x… (1000000 characters).")


def test_a_wrong_use_exits_with_2_and_every_other_error_with_1():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PaddleportError)]
    assert len(kinds) > 5
    assert {kind.__name__: kind.exit_code for kind in kinds if kind.exit_code != 1} == {
        "UsageError": UsageError.exit_code
    }
    assert UsageError.exit_code == 2


def test_a_missing_package_says_how_to_install_it():
    message = str(MissingExtraError("paddle", "train"))
    assert "the package 'paddle', which is not installed here" in message
    assert message.endswith("In a checkout of Paddleport, install it with: pip install '.[train]'.")


def test_a_server_error_knows_its_status():
    assert ServerError("No answer").status is None
    assert ServerError("Refused", status=404, todo="Look again").status == 404
