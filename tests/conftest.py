"""What the tests of every folder share: `import bundles` works in them, and CI has every tool."""

import os
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
# The root as well: else Python takes tests/paddleport for the package `paddleport`, and so for every stage.
sys.path += [str(_TESTS.parent), str(_TESTS)]


def pytest_collection_modifyitems(config, items):
    """Leave out what is marked slow, unless -m asks for something itself."""
    if config.getoption("-m"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test skipped because it `needs` a tool is a failure in CI, which installs them all."""
    report = yield
    if report.skipped and os.environ.get("CI") and "needs " in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report
