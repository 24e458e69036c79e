from paddleport import progress


def test_a_bar_with_a_long_label_stays_on_one_line_with_its_numbers(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with progress._bar("CartPole-v1, runs/a-long-name-of-a-run/checkpoints/step-000100109", 100) as advance:
        for _ in range(100):
            advance()
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.strip()]
    assert len(line) <= 80
    assert line.startswith("CartPole-v1, runs/")
    assert "100/100 0:00:00" in line
