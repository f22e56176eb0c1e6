"""The receiver of the guide runs as it is written, against a real service."""

import subprocess
import sys
from pathlib import Path

from tests.serve.harness.clients import until
from tests.serve.harness.in_process import POLICY, running
from tests.serve.harness.service_process import free_port
from tests.serve.test_documentation import GUIDE, blocks


def test_the_receiver_of_the_guide_takes_what_is_signed_once(tmp_path: Path) -> None:
    [code] = [block for block in blocks(GUIDE, "python") if "verify_webhook" in block]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    port = free_port()
    output = tmp_path / "output"
    with running(tmp_path, webhook_private=True) as service, output.open("wb") as out:
        client = service.client()
        assert client.post("/v1/policies", POLICY).status == 201
        body = {"url": f"http://127.0.0.1:{port}/", "events": ["decided", "completed"]}
        good, other = (client.post("/v1/webhooks", body).json for _ in range(2))
        code = code.replace("whsec_…", good["secret"]).replace("9000", str(port))
        receiver = subprocess.Popen([sys.executable, "-W", "error", "-c", code], stdout=out, stderr=subprocess.DEVNULL)
        try:
            assert client.decide("a").status == 201  # it may not listen yet
            assert client.post("/v1/policies/p/outcomes", {"task": "a", "cost": 0.5}).status == 200

            def replies(webhook: str) -> set[tuple[str, int | None]]:
                found = client.get(f"/v1/webhooks/deliveries?id={webhook}").json["deliveries"]
                return {(each["state"], each["status"]) for each in found}

            until(lambda: replies(good["id"]) == {("delivered", 204)})
            until(lambda: replies(other["id"]) == {("waiting", 400)})  # signed with a secret that it does not know
        finally:
            receiver.kill()
            receiver.wait()
    assert sorted(line.split()[0] for line in output.read_text().splitlines()) == ["completed", "decided"]
