"""The fuzz targets of wire hold for some seeded runs each, and so keep working."""

from types import ModuleType

import pytest

from fuzz import harness, wire_control, wire_data, wire_entry, wire_lzfoo


@pytest.mark.parametrize("target", [wire_control, wire_data, wire_entry, wire_lzfoo])
def test_the_invariant_of_a_target_holds(target: ModuleType) -> None:
    checked: list[bytes] = []

    def check(data: bytes) -> None:
        target.check(data)
        checked.append(data)

    harness.run_seeded(check, target.CORPUS, runs=150, seed=1)
    assert len(set(checked)) > 100


def test_a_failing_input_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def check(data: bytes) -> None:
        assert data != b"\x01"

    with pytest.raises(AssertionError):
        harness.run_seeded(check, [b"\x00", b"\x01"], runs=1, seed=0)
    assert capsys.readouterr().err == "failed on --input 01\n"


def test_a_seed_makes_the_same_inputs_every_time() -> None:
    made: list[list[bytes]] = [[], []]
    for inputs in made:
        harness.run_seeded(inputs.append, [b"abc", b"\x80"], runs=50, seed=3)
    assert made[0] == made[1]
    assert len(set(made[0])) > 25
