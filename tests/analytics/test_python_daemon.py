"""Spark's Python daemon takes pyspark from where it is installed, and not out of a zip."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.python_daemon import without_own_zips

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of packages that has pyspark, with the zips that come with it."""
    folder = tmp_path / "packages"
    zips = folder / "pyspark" / "python" / "lib"
    zips.mkdir(parents=True)
    (folder / "pyspark" / "__init__.py").touch()
    for name in ("pyspark.zip", "py4j-1-src.zip"):
        (zips / name).touch()
    return folder


def test_the_zips_of_the_installed_pyspark_are_left_out(installed: Path, tmp_path: Path) -> None:
    zips = [str(path) for path in (installed / "pyspark" / "python" / "lib").iterdir()]
    others = ["", str(tmp_path / "shipped.zip"), str(installed), "/usr/lib/python"]
    assert without_own_zips([*zips, *others]) == others


def test_another_spark_keeps_its_own(installed: Path, tmp_path: Path) -> None:
    """It may be of another version than what is installed."""
    path = [str(tmp_path / "spark" / "python" / "lib" / "pyspark.zip"), str(installed)]
    assert without_own_zips(path) == path


def test_where_none_is_installed_the_zips_stay(installed: Path) -> None:
    path = [str(installed / "pyspark" / "python" / "lib" / "pyspark.zip"), "/usr/lib/python"]
    assert without_own_zips(path) == path


def test_workers_run_what_is_installed(spark: "SparkSession") -> None:
    def where(_: object) -> str:
        import pyspark

        return str(pyspark.__file__)

    found = spark.sparkContext.parallelize([0], 1).map(where).first()
    import pyspark

    assert found == pyspark.__file__
    assert ".zip" not in found
