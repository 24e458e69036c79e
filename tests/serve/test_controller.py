"""What is decided for all workers, without any."""

import shutil

import pytest

from serve.control import grant
from serve.messages import Denied, Granted, Load, RollBack, SetSplit, Unload
from serve.runtime.controller import Controller
from serve.runtime.errors import RefusedError, UnknownPolicyError
from serve.runtime.local import look
from serve.runtime.table import Split


class Fleet:
    """Workers that open everything but what is marked bad, and remember what they were told."""

    def __init__(self):
        self.bad, self.opened, self.table = set(), [], {}

    def open(self, name, version):
        self.opened.append((name, version))
        return "bad" if (name, version) in self.bad else ""

    def commit(self, table):
        assert all((name, version) in self.opened for name, route in table.items() for version in route.open)
        self.table = table


def publish(models, name, *versions):
    for version in versions:
        (models / name / str(version)).mkdir(parents=True)
        (models / name / str(version) / "manifest.json").write_text(str(version))


@pytest.fixture
def models(tmp_path):
    publish(tmp_path, "a", 1, 2, 3)
    publish(tmp_path, "b", 1)
    return tmp_path


@pytest.fixture
def fleet():
    return Fleet()


def started(models, fleet, pins=None, explicit=False):
    control = Controller(models, fleet, pins or {}, explicit=explicit)
    control.start()
    return control


def test_every_version_is_opened_before_anything_is_served(models, fleet):
    started(models, fleet)
    assert fleet.table["a"].default == 3
    assert fleet.table["a"].open == (1, 2, 3)


def test_a_look_that_finds_nothing_new_opens_nothing(models, fleet):
    control = started(models, fleet)
    before = list(fleet.opened)
    control.look()
    assert fleet.opened == before


def test_a_version_replaced_in_place_is_opened_again(models, fleet):
    control = started(models, fleet)
    shutil.rmtree(models / "a" / "3")
    publish(models, "a", 3)
    control.look()
    assert fleet.opened.count(("a", 3)) == 2
    assert fleet.table["a"].default == 3


def test_a_refused_version_is_tried_again_only_when_it_changed(models, fleet):
    fleet.bad.add(("a", 3))
    control = started(models, fleet)
    assert fleet.table["a"].default == 2
    assert fleet.table["a"].refused == {3: "bad"}
    control.look()
    assert fleet.opened.count(("a", 3)) == 1
    fleet.bad.clear()
    shutil.rmtree(models / "a" / "3")
    publish(models, "a", 3)
    control.look()
    assert (fleet.table["a"].default, fleet.table["a"].refused) == (3, {})


def test_a_version_that_a_new_worker_could_not_open_is_tried_again(models, fleet):
    control = started(models, fleet)
    control.drop("a", 3, "bad moment")
    assert (fleet.table["a"].default, fleet.table["a"].refused) == (2, {3: "bad moment"})
    control.look()
    assert (fleet.table["a"].default, fleet.table["a"].refused) == (3, {})
    fleet.bad.add(("a", 3))
    control.drop("a", 3, "damaged")
    for _ in range(3):
        control.look()
    assert fleet.opened.count(("a", 3)) == 3
    assert fleet.table["a"].refused == {3: "bad"}


def test_a_rollback_holds_until_a_newer_version_and_a_pin_for_ever(models, fleet):
    control = started(models, fleet, {"b": 1})
    assert control.roll_back("a") == 2
    control.look()
    assert fleet.table["a"].default == 2
    publish(models, "a", 4)
    publish(models, "b", 2)
    control.look()
    assert (fleet.table["a"].default, fleet.table["b"].default) == (4, 1)
    with pytest.raises(UnknownPolicyError):
        control.roll_back("a", 9)
    with pytest.raises(UnknownPolicyError):
        control.roll_back("nothing")


def test_the_acting_and_the_split_version_are_kept_however_old(models, fleet):
    control = started(models, fleet)
    control.roll_back("a", 2)
    control.split("a", Split("shadow", 1, 0.5))
    publish(models, "a", 4, 5, 6)
    fleet.bad |= {("a", 4), ("a", 5), ("a", 6)}
    control.look()
    assert fleet.table["a"].default == 2
    assert {1, 2} <= set(fleet.table["a"].open)
    assert fleet.table["a"].split == Split("shadow", 1, 0.5)


def test_a_split_ends_with_what_it_is_made_of(models, fleet):
    control = started(models, fleet)
    control.split("a", Split("canary", 2, 0.5))
    control.roll_back("a", 2)
    assert fleet.table["a"].split is None
    with pytest.raises(RefusedError, match="acts already"):
        control.split("a", Split("canary", 2, 0.5))


def test_unloaded_stays_so_until_it_is_loaded(models, fleet):
    control = started(models, fleet)
    control.unload("a")
    publish(models, "a", 4)
    control.look()
    assert fleet.table["a"].default is None
    control.load("a")
    assert fleet.table["a"].default == 4


def test_explicit_control_opens_what_is_named_and_nothing_else(models, fleet):
    control = started(models, fleet, {"b": None}, explicit=True)
    assert list(fleet.table) == ["b"]
    publish(models, "b", 2)
    control.look()
    assert fleet.table["b"].default == 1
    control.load("b")
    assert fleet.table["b"].default == 2
    fleet.bad.add(("a", 3))
    with pytest.raises(RefusedError, match="version 3 is refused: bad"):
        control.load("a")
    assert fleet.table["a"].default == 2


def test_wishes_are_granted_or_denied_and_never_raise(models, fleet):
    control = started(models, fleet)
    assert isinstance(grant(control, RollBack("a", None)), Granted)
    assert grant(control, Unload("nothing")).status == 404
    assert grant(control, Load("nothing")).status == 404
    assert grant(control, SetSplit("a", Split("canary", 2, 0.1))).status == 409
    fleet.commit = None
    denied = grant(control, Unload("a"))
    assert isinstance(denied, Denied)
    assert denied.status == 500


def test_a_folder_that_goes_away_is_trouble_and_not_the_end(models, fleet, caplog):
    control = started(models, fleet)
    shutil.move(models, models.parent / "moved")
    look(control)
    look(control)
    assert caplog.text.count("cannot be read") == 1
    assert fleet.table["a"].default == 3
