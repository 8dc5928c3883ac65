"""The service as a process: what it refuses, what survives a kill, and its client."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from browsers import serving, until
from processes import running
from served_bases import grown, rows
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app
from ibcl.serve import Client, ServiceError, Settings, create_app

pytestmark = pytest.mark.slow


def test_what_was_acknowledged_survives_a_kill(base, tmp_path):
    database = ("--database", str(tmp_path / "users.sqlite"))
    acknowledged: dict[str, dict[str, float]] = {}

    def write(url: str, writer: int) -> None:
        with Client(url) as client:
            for number in range(10_000):
                user, weight = f"{writer}-{number % 20}", (number % 11) / 10
                preference = {"sci-fi": weight, "horror": 1 - weight}
                try:
                    client.set_preference(user, preference)
                except Exception:
                    unsure.add(user)
                    return
                acknowledged[user] = preference

    unsure: set[str] = set()
    with running(base, *database) as (process, url):
        writers = [threading.Thread(target=write, args=(url, n)) for n in range(4)]
        for writer in writers:
            writer.start()
        while len(acknowledged) < 60:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        for writer in writers:
            writer.join()
    assert len(unsure) == 4
    settings = Settings(base, database=database[1])
    with serving(create_app(settings)) as url, Client(url) as client:
        for user, preference in acknowledged.items():
            # The write under way when the server was killed may or may not have been made.
            if user not in unsure:
                assert client.preference(user).preference == pytest.approx(preference)


def test_the_client_says_everything_the_service_can_do(base, tmp_path):
    settings = Settings(base, poll=0.02)
    with serving(create_app(settings)) as url, Client(url) as client:
        assert client.tasks().tasks == ["sci-fi", "horror"]
        client.set_preference("ann", {"horror": 1.0}, share_of_new_tasks=0.1)
        assert client.preference("ann").share_of_new_tasks == 0.1
        given = rows("horror", 3)
        by_user = client.predict(given, user="ann", bounds=True, uncertainty=True, routing=True)
        assert by_user.preference == {"sci-fi": 0.0, "horror": 1.0}
        assert by_user.bounds is not None
        assert by_user.routing.shares[0]["horror"] == 1.0
        found = client.infer("ann", rows("sci-fi", 40), clicked=[True] * 40, restart=True)
        assert found.preference["sci-fi"] > 0.9
        assert [entry.source for entry in client.history("ann")] == ["inferred", "set"]
        client.delete_preference("ann", history=True)
        with pytest.raises(ServiceError, match="no stored preference") as caught:
            client.preference("ann")
        assert caught.value.status == 404
        with pytest.raises(ValueError, match="either a preference or a user"):
            client.predict(given)
        path = tmp_path / "model.safetensors"
        path.write_bytes(client.model({"sci-fi": 1.0}))
        assert ibcl.load_model(path).preference["sci-fi"] == 1.0
        first = client.tasks().version
        grown(base, 3)
        until(lambda: len(client.tasks().tasks) == 3)
        assert client.activate(first) == first
        assert [v.active for v in client.versions().versions] == [True, False]
        assert client.activate() != first


def run(*arguments: str):
    return CliRunner().invoke(app, arguments)


def test_other_addresses_need_tokens_and_the_log_is_json_lines_to_the_end(base):
    refused = run("serve", str(base), "--host", "0.0.0.0", "--port", "0")
    assert refused.exit_code == 2
    assert "ibcl token" in refused.stderr.splitlines()[-1]
    token = run("token", str(base), "--user", "ann").stdout.strip()
    listed = json.loads(run("token", str(base), "--list", "--json").stdout)["tokens"]
    assert [entry["user"] for entry in listed] == ["ann"]
    with running(base, "--host", "0.0.0.0") as (process, url):
        with Client(url) as stranger, pytest.raises(ServiceError, match="token"):
            stranger.tasks()
        with Client(url, token) as ann:
            ann.set_preference("ann", {"horror": 1.0})
            with pytest.raises(ServiceError, match="another user"):
                ann.preference("bob")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
        lines = process.stderr.read().decode().splitlines()
    assert json.loads(lines[0])["event"] == "serving"
    assert all(json.loads(line)["event"] for line in lines)
    assert run("token", str(base), "--revoke", listed[0]["id"]).exit_code == 0
    assert run("serve", str(base), "--host", "0.0.0.0", "--port", "0").exit_code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--validation", "sci-fi"), "TASK=FILE"),
        (("--validation", "sci-fi=nowhere.csv", "--label", "y"), "nowhere.csv"),
        (("--database", "mysql://here/there"), "postgresql"),
        (("--host", "203.0.113.1"), "token"),
    ],
)
def test_wrong_settings_are_one_sentence(base, options, said):
    result = run("serve", str(base), "--port", "0", *options)
    assert result.exit_code == 2
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_a_client_loads_no_library_that_computes():
    program = (
        "import sys\nfrom ibcl.serve import Client\nprint({'torch', 'fastapi'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
