"""The benchmark of the engines runs with the losses and engines as they are."""

import benchmarks.engines


def test_every_size_is_measured_in_both_engines(capsys, monkeypatch):
    monkeypatch.setattr(benchmarks.engines, "UPDATES", 1)
    benchmarks.engines.main(rounds=1)
    printed = capsys.readouterr().out
    assert printed.count("…") >= len(benchmarks.engines.SIZES)
