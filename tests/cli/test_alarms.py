"""What `status`, `status --check` and `check` call an alarm, and what is none."""

from types import SimpleNamespace

import apsw
import pytest

from logstore import Fault, Store
from tests.cli.harness import AUTHOR_KEY, CommandLine, lines_of, make_log, words
from wire import LogKey

AUTHOR = bytes(AUTHOR_KEY.verify_key).hex()
KEY = LogKey.parse(AUTHOR)


def kinds(own: CommandLine) -> list[str]:
    return [each["kind"] for each in own("status", "--json").record["alarms"]]


def fork(own: CommandLine) -> None:
    own("import", stdin=lines_of(make_log(words(3))))
    own("import", stdin=lines_of(make_log([*words(1), b"other"])))


def damage(own: CommandLine, seq: int) -> None:
    database = apsw.Connection(str(own.store / "store.sqlite3"))
    query = "UPDATE entries SET payload = CAST('x' AS BLOB) WHERE seq = ?"
    database.execute(query, (seq.to_bytes(8, "big"),))
    database.close()


def test_a_store_that_is_well_has_none(own: CommandLine) -> None:
    own("append", stdin=b"x")
    record = own("status", "--json").record
    assert (record["alarms"], record["in_step"], record["verified_at"]) == ([], None, None)
    assert own("status", "--check").status == 0
    assert own("status").lines[0] == "no node serves this store"


def test_a_fork_is_one_until_it_is_dismissed(own: CommandLine) -> None:
    fork(own)
    [alarm] = own("status", "--json").record["alarms"]
    assert (alarm["kind"], alarm["author"], alarm["log_id"], alarm["seq"]) == ("fork", AUTHOR, 0, 2)
    assert own("status").status == 0
    assert own("status", "--check").status == 1
    assert own("status", "--check").lines[1].startswith("! fork: ")
    assert own("forks", "dismiss", AUTHOR).status == 0
    assert own("status", "--check").status == 0
    assert own("forks").lines == [f"{AUTHOR}/0/2"]
    assert "forked" in own("status").text
    again = own("forks", "dismiss", AUTHOR, "--undo", "--json").record
    assert (again["dismissed"], again["changed"]) == (False, True)
    assert own("status", "--check").status == 1
    assert own("forks", "dismiss", own.author).status == 1


def test_a_proof_about_a_log_that_is_nobodys_business_is_none(own: CommandLine) -> None:
    first, second = make_log(words(1))[0], make_log([b"other"])[0]
    with Store.open(own.store) as store:
        store.record_fork(first.key, first.encoded, second.encoded)
    assert kinds(own) == []
    own("follow", AUTHOR)
    assert kinds(own) == ["fork"]


def test_damage_that_verify_found_is_one_until_verify_does_not_find_it(own: CommandLine) -> None:
    own("import", stdin=lines_of(make_log(words(3))))
    damage(own, 2)
    assert kinds(own) == []
    assert own("verify").status == 1
    [alarm] = own("status", "--json").record["alarms"]
    assert (alarm["kind"], alarm["author"], alarm["seq"]) == ("damage", AUTHOR, 2)
    assert alarm["since"].endswith("Z")
    assert own("status", "--check").status == 1
    first = own("status", "--json").record["verified_at"]
    assert own("verify", AUTHOR).status == 1
    assert own("status", "--json").record["verified_at"] == first
    own("drop", AUTHOR, 2)
    assert own("verify", AUTHOR).status == 0
    assert own("status", "--check").status == 0


def test_damage_that_a_reader_met_is_one(own: CommandLine) -> None:
    own("import", stdin=lines_of(make_log(words(3))))
    damage(own, 3)
    assert own("cat", AUTHOR).status == 1
    assert kinds(own) == ["damage"]


def test_a_full_disk_is_one(own: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    [alarm] = own("status", "--json").record["alarms"]
    assert (alarm["kind"], "1000 B free" in alarm["text"]) == ("disk_full", True)


def test_a_thousand_faults_are_kept(own: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logstore.alarms.FAULTS_MAX", 3)
    faults = [Fault(f"{KEY}/{seq}", "the entry is damaged", KEY, seq) for seq in range(1, 9)]
    with Store.open(own.store) as store:
        for each in [*faults[:2], *faults]:
            store.alarms.note(each)
        assert [each.seq for each in store.alarms.faults()] == [1, 2, 3]
        store.alarms.verified(KEY, faults[2:])
        assert sorted(each.seq or 0 for each in store.alarms.faults()) == [3, 4, 5]
        store.alarms.verified(None, [], whole=True)
        assert len(store.alarms.faults()) == 3
        store.alarms.verified(KEY, [])
        assert store.alarms.faults() == []
