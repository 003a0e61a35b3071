"""The fuzz target of bundles holds for some seeded runs, and so keeps working."""

from fuzz import bundle_import, harness


def test_importer_and_exporter_hold() -> None:
    harness.run_seeded(bundle_import.check, bundle_import.CORPUS, runs=200, seed=1)
