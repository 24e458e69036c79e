import pytest

from paddleport.errors import UsageError
from paddleport.manifest import check_name


@pytest.mark.parametrize("name", ["cartpole", "CartPole-v1", "a", "0", "a.b_c-d", "x" * 64])
def test_a_name_for_a_policy_is_given_back(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "-x", "a/b", "a\\b", "a b", "é", "x" * 65, "a\n", "a\0", "../a", "%2e", "٣"]
)
def test_what_cannot_stand_in_a_path_and_a_url_names_no_policy(name):
    with pytest.raises(UsageError, match="no name for a policy: expected up to 64 letters, digits"):
        check_name(name)
