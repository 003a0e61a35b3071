"""What worlds cost is counted, written, read and compared."""

from pathlib import Path

from .figures import Figures, compare, line_of, read
from .plan import draw_plan
from .run import run_world


def test_a_world_has_figures_and_a_file_of_them_can_be_read(tmp_path: Path) -> None:
    found = run_world(draw_plan(3, nodes=2, events=5, only=("appends",))).figures
    assert min(found.proposals, found.look_ups, found.payload_bytes) > 0
    file = tmp_path / "figures"
    file.write_text(f"{line_of(3, found)}\n{line_of(4, Figures(1, 2, 3, 4.5))}\n")
    assert read(file) == {3: found, 4: Figures(1, 2, 3, 4.5)}


def test_sums_and_quantiles_of_both_are_compared() -> None:
    before = [Figures(proposals=n, look_ups=1) for n in range(1, 101)]
    after = [Figures(proposals=2 * n, look_ups=1) for n in range(1, 101)]
    lines = compare(before, after)
    assert lines[0] == "100 worlds before, 100 after"
    words = [line.split() for line in lines[1:5]]
    assert words[0] == ["proposals", "sum", "5050.0", "10100.0", "2.000"]
    assert words[1] == ["proposals", "50", "%", "51.0", "102.0", "2.000"]
    assert words[3] == ["proposals", "100", "%", "100.0", "200.0", "2.000"]
    assert lines[-1].split()[-1] == "-"
