"""docs/spark.md, "On a cluster": each command works, in the order of the page."""

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from analytics import ensure_java
from analytics.requirements import PACKAGES
from tests.analytics.clusters import PYARROW, PYNACL, TOP, add_packages, free_port, wait_for_workers
from tests.analytics.makers import export, filled_store

TEXT = (TOP / "docs/spark.md").read_text()
BLOCKS = re.findall(r"^```bash\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.jvm
@pytest.mark.long
def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "lake")
    port, page = free_port(), free_port()
    python, master, worker, work = (block.replace("7077", str(port)) for block in BLOCKS)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JAVA_HOME": str(ensure_java()),
        "PYTHONPATH": str(TOP),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_WEBUI_PORT": str(page),
        "SPARK_WORKER_WEBUI_PORT": str(free_port()),
    }
    make, install = python.splitlines()
    # No network here: the line names what there has to be, and it is put there.
    assert re.findall(r"'([^']+)'", install) == list(PACKAGES.values())
    assert install.startswith("python3 -m pip --python worker install ")
    with ExitStack() as stack:

        def start(block: str) -> subprocess.Popen[bytes]:
            log = stack.enter_context((tmp_path / "log").open("ab"))
            script = block.replace('\n"$SPARK_HOME', '\nexec "$SPARK_HOME')
            process = subprocess.Popen(
                ["bash", "-ec", script], env=environment, cwd=tmp_path, stdout=log, stderr=log
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        assert start(make).wait(60) == 0
        add_packages(tmp_path / "worker", *PYNACL, *PYARROW)
        start(master)
        wait_for_workers(page, 0)
        start(worker)
        wait_for_workers(page, 1)
        assert start(work).wait(200) == 0, (tmp_path / "log").read_text()
    assert pq.read_table(tmp_path / "results/logs").num_rows == 3
    assert "no faults" in (tmp_path / "results/report.html").read_text()
