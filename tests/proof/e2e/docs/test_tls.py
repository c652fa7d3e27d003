"""The service with TLS and without a proxy, called by curl."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.fakes.certificates import make_certificate
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.documented import DOCS, files
from tests.proof.e2e.process import Port, gatehouse
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def curl(*arguments: str, trust: Path) -> str:
    """Return the response's head and body, or the error."""
    ran = subprocess.run(["curl", "-isS", "--cacert", str(trust), *arguments], capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr


def renew(home: Path, days: float) -> str:
    """Create a certificate as certbot does, run the documented hook, and return the certificate with its key."""
    lineage = home / "lineage"
    lineage.mkdir(exist_ok=True)
    key, mark, certificate = make_certificate(lineage / "both.pem", "localhost", days=days).read_text().partition("-----BEGIN CERT")
    (lineage / "privkey.pem").write_text(key)
    (lineage / "fullchain.pem").write_text(mark + certificate)
    hook = files(DOCS / "operating" / "tls.md")["deploy-hook"].replace(" -g gatehouse", "").replace("/etc/", f"{home}/")
    subprocess.run(["sh", "-c", hook], env={**os.environ, "RENEWED_LINEAGE": str(lineage)}, check=True)
    return "".join((home / "gatehouse-tls" / name).read_text() for name in ("key.pem", "certificate.pem"))


def test_curl_reaches_a_service_without_a_proxy(service: Start, own_database: dict[str, str], home: Path) -> None:
    """The workers use a renewed certificate after SIGHUP."""
    certificate = make_certificate(home / "server.pem", "localhost")
    certificate.chmod(0o644)
    with Port() as plain:
        tls = {
            "SSO_TLS_CERTIFICATE": str(certificate),
            "SSO_TLS_KEY": str(certificate),
            "SSO_TLS_REDIRECT_BIND": f"localhost:{plain.number}",
        }
        running = service(SSO_WORKERS="2", **tls, **own_database).start()
        document = curl(f"{running.address}/.well-known/openid-configuration", trust=certificate)
        assert document.startswith("HTTP/2 200 ")
        assert f'"issuer":"{running.address}"' in document.replace(" ", "")
        page = curl(f"{running.address}/app/sign-in", trust=certificate)
        assert "Secure" in page
        assert "strict-transport-security" not in page.lower()  # browsers would apply it to all ports on localhost
        assert {"127.0.0.1", "::1"} >= {line["address"] for line in running.logged("request")}
        assert 0 < running.metric("sso_tls_certificate_expiry_timestamp_seconds")[""] - time.time() < 86_400

        assert curl("--http1.1", f"{running.address}/app/sign-in", trust=certificate).startswith("HTTP/1.1 200 ")
        assert curl("--json", "{}", f"{running.address}/api/auth/login", trust=certificate).startswith("HTTP/2 400 ")
        redirected = curl(f"http://localhost:{plain.number}/app/sign-in?next=%2F", trust=certificate)
        assert redirected.startswith("HTTP/1.1 308 ")
        assert f"location: {running.address}/app/sign-in?next=%2F\n" in redirected
        assert "HTTP/1.1 400 " in curl("-d", "secret", f"http://localhost:{plain.number}/app/sign-in", trust=certificate)
        assert "https" in curl(running.address.replace("https", "http"), trust=certificate)

        certificate.write_text(renew(home, days=90))  # clients no longer trust the first certificate
        os.kill(running.process.pid, signal.SIGHUP)
        until(lambda: len(running.logged("files_reloaded")) == 2, "both workers have read the files")
        for _ in range(8):
            assert curl(f"{running.address}/health", trust=certificate).startswith("HTTP/2 200 ")
        certificate.write_text("broken")
        os.kill(running.process.pid, signal.SIGHUP)
        until(lambda: len(running.logged("file_not_reloaded")) >= 2, "both workers have refused the file")
        assert len(running.logged("files_reloaded")) == 2
        assert "has no certificate in PEM" in running.logged("file_not_reloaded")[0]["reason"]
        assert "certificate" in gatehouse(home, "doctor", **running.settings).stdout
        running.stop()
        assert [line for line in running.log if line["level"] == "error" and line["event"] != "file_not_reloaded"] == []
