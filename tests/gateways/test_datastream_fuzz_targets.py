"""The fuzz targets of data streams hold for some seeded runs, and so keep working."""

from fuzz import datastream_codec, datastream_file, datastream_sessions, harness


def test_the_codec_holds() -> None:
    harness.run_seeded(datastream_codec.check, datastream_codec.CORPUS, runs=500, seed=1)


def test_the_file_reader_holds() -> None:
    harness.run_seeded(datastream_file.check, datastream_file.CORPUS, runs=300, seed=1)


def test_the_sessions_hold() -> None:
    harness.run_seeded(datastream_sessions.check, datastream_sessions.CORPUS, runs=500, seed=1)
