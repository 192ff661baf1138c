"""Links to what is somebody else's, wherever the services read or write; the kernel's own protection off and on."""

import json

import pytest
from tests.attacks.siege import CANARIES, SPOOLS, Siege
from tests.support.patience import eventually

pytestmark = pytest.mark.usefixtures("protection")


def test_links_in_the_spool_are_refused(siege: Siege, mallory: str) -> None:
    """A symbolic link to what its user cannot read, or to what he can, is never followed."""
    targets = [*CANARIES, f"{SPOOLS}/alice", "/etc/passwd", "/dev/null", "/proc/self/environ"]
    for number, target in enumerate(targets):
        siege.sh(mallory, f"ln -s {target} {SPOOLS}/{mallory}/link{number}.json")
    siege.poke(mallory)
    for number, _ in enumerate(targets):
        assert "symbolic link" in siege.refusal(mallory, f"link{number}.json")


def test_hard_links_in_the_spool_are_refused(siege: Siege, mallory: str, protection: int) -> None:
    """Where the kernel lets anybody link any file, the owner tells; a second name of one's own file is refused too."""
    spool = f"{SPOOLS}/{mallory}"
    siege.sh(mallory, f'echo "prompt: true" > mine.yaml; ln mine.yaml {spool}/mine.yaml')
    siege.poke(mallory)
    assert "hard link" in siege.refusal(mallory, "mine.yaml")
    made = siege.do(mallory, "ln", "/etc/canary", f"{spool}/canary.yaml", check=False).returncode == 0
    assert made is not bool(protection)
    if made:
        siege.poke(mallory)
        # Not even its owner is looked at beyond its status: it cannot be opened.
        assert "cannot be read" in siege.refusal(mallory, "canary.yaml")
        siege.sh(mallory, f"rm -f {spool}/rejected/canary.yaml")


def test_others_files_are_refused(siege: Siege, mallory: str) -> None:
    """A file that mallory can read and has moved in is still another user's."""
    siege.sh("alice", "mkdir -p open; chmod 0777 open; echo 'prompt: ls' > open/hers.yaml; chmod 0644 open/hers.yaml")
    siege.sh(mallory, f"mv /home/alice/open/hers.yaml {SPOOLS}/{mallory}/hers.yaml")
    assert "belongs to somebody else" in siege.refusal(mallory, "hers.yaml")


@pytest.mark.parametrize("target", ["/home/alice", "/etc"])
@pytest.mark.parametrize("place", [".intake", "rejected", ".runs"])
def test_links_in_place_of_folders_lead_nowhere(place: str, target: str, siege: Siege, mallory: str) -> None:
    """Whoever follows them is nobody but mallory: what he cannot write stays as it is."""
    before = siege.sh("root", f"ls -la --time-style=full-iso {target}")
    siege.sh(mallory, f"ln -s {target} {SPOOLS}/{mallory}/{place}")
    siege.drop(mallory, "bad.yaml", "no: task")
    siege.drop(mallory, "good.yaml", "prompt: ls")
    siege.run_for_alice()
    assert siege.sh("root", f"ls -la --time-style=full-iso {target}") == before


def test_a_link_in_place_of_a_note_is_replaced(siege: Siege, mallory: str) -> None:
    """What it leads to is not written to."""
    siege.sh(mallory, f"mkdir {SPOOLS}/{mallory}/rejected; ln -s ~/own {SPOOLS}/{mallory}/rejected/bad.yaml.error")
    siege.sh(mallory, "echo before > own")
    siege.drop(mallory, "bad.yaml", "no: task")
    assert siege.refusal(mallory, "bad.yaml")
    assert siege.sh(mallory, "cat own") == "before\n"


@pytest.mark.parametrize("how", ["ln -s", "ln"])
def test_links_in_a_drop_off_are_not_followed(how: str, siege: Siege, mallory: str) -> None:
    """Result, progress, prompt and task of a run."""
    for target in CANARIES:
        names = "result.json progress prompt.txt task.json"
        script = f"cd $FAIRLEAD_RUN_DIR && for name in {names}; do rm -f $name; {how} {target} $name; done; true"
        record = siege.record(siege.task(mallory, script))
        assert (record["status"], record["result"]) == ("completed", None)


def test_a_link_in_place_of_a_drop_off_leads_nowhere(siege: Siege, mallory: str) -> None:
    """What is cleared after a run is what mallory could clear himself."""
    for target in ("/home/alice", f"{SPOOLS}/alice/.runs"):
        before = siege.sh("root", f"ls -la --time-style=full-iso {target}")
        script = f"cd; rm -rf {SPOOLS}/{mallory}/.runs/*; ln -s {target} $FAIRLEAD_RUN_DIR; true"
        assert siege.record(siege.task(mallory, script))["status"] == "completed"
        assert siege.sh("root", f"ls -la --time-style=full-iso {target}") == before


def test_a_result_with_another_name_is_not_taken(siege: Siege, mallory: str, protection: int) -> None:
    """It may be somebody else's, whom mallory has made a hard link of where the kernel lets him."""
    siege.sh("alice", "echo '[1]' > hers.json; chmod 0644 hers.json")
    title = siege.task(mallory, "until [ -e ~/go ]; do sleep 0.01; done")
    siege.starting(mallory)
    runs = f"{SPOOLS}/{mallory}/.runs"
    eventually(lambda: list(siege.spool(mallory).glob(".runs/*/prompt.txt")), "no drop-off")
    link = f"for run in {runs}/*; do ln /home/alice/hers.json $run/result.json; done"
    assert (siege.do(mallory, "/bin/sh", "-c", link, check=False).returncode == 0) is not bool(protection)
    siege.sh(mallory, "touch go")
    record = siege.record(title)
    assert record["result"] is None
    assert protection or "hard link" in record["error"]


def test_artifacts_do_not_lead_out_of_the_tree(siege: Siege, mallory: str) -> None:
    """Names are listed, and only of what is below the working directory."""
    siege.sh(mallory, "mkdir tree && cd tree && touch kept && ln -s /home/alice hers && ln -s /etc etc && ln -s / root")
    siege.sh(mallory, "cd tree && ln -s /etc/canary canary && ln -s /etc/passwd passwd && ln -s .. up")
    patterns = ["tree/*", "tree/*/canary", "tree/**/passwd", "tree/hers/*", "tree/root/**", "tree/up/tree/kept"]
    record = siege.record(siege.task(mallory, "true", artifacts=patterns))
    assert record["artifacts"] == ["tree/kept", "tree/up/tree/kept"]
    siege.drop(mallory, "out.json", json.dumps({"prompt": "true", "artifacts": ["../alice/*", "/etc/*"]}))
    assert "not below the working directory" in siege.refusal(mallory, "out.json")


def test_a_spool_cannot_be_replaced(siege: Siege, mallory: str) -> None:
    """It is its user's, but the folder that it is in is root's."""
    own = f"{SPOOLS}/{mallory}"
    for script in (f"mv {own} {own}.old", f"rmdir {own}", f"ln -s /etc {SPOOLS}/link", f"mkdir {SPOOLS}/nobody"):
        assert siege.do(mallory, "/bin/sh", "-c", script, check=False).returncode != 0, script
    siege.sh(mallory, f"chmod 0000 {own}")
    siege.run_for_alice()
    siege.sh(mallory, f"chmod 0700 {own}")


def test_agents_enter_no_directory_that_is_not_their_users(siege: Siege, mallory: str) -> None:
    """Where a project leads, its user has to be able to go by himself."""
    siege.host.write("/etc/fairlead/config.d/vault.yaml", "projects: {vault: {path: /tmp/vault}}\n")
    siege.host.systemctl("reload", "fairlead-daemon.service", "fairlead-porter.service")
    for target in ("/root", "/home/alice/private", "/etc/canary"):
        siege.sh("alice", "mkdir -p /home/alice/private; chmod 0700 /home/alice/private")
        siege.sh(mallory, f"ln -s {target} /tmp/vault")
        record = siege.record(siege.task(mallory, "cat canary; ls", project="vault", artifacts=["*"]))
        assert (record["status"], record["reason"], record["artifacts"]) == ("failed", "not_started", [])
        siege.sh(mallory, "rm /tmp/vault")
