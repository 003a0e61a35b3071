"""One Spark for all tests that need it."""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.python.filterPushdown.enabled": "false",
    # Small data many times: compiling costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A session on this machine."""
    from analytics import start_spark

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with start_spark("local[2]", "tests", SETTINGS) as session:
            yield session
