"""Behind a real nginx nobody writes under a name that the proxy did not state."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from served import place

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
SITE = Path(__file__).parents[2] / "deploy" / "nginx.conf"
SECRET = "0123456789abcdef0123456789abcdef"
#: A site that forwards addresses and sets no header with a name.
BARE = """
server {
    listen 127.0.0.1:%d ssl;
    ssl_certificate %s/cert.pem;
    ssl_certificate_key %s/key.pem;
    location / {
        proxy_pass http://lockstep;
        proxy_set_header Host $host;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }
}
"""
CLAIMS = [
    {"X-Forwarded-User": "ceo"},
    {"X-Lockstep-User": "ceo"},
    {"X-Lockstep-User": f"{SECRET[:-1]} ceo"},
    {"X_Lockstep_User": f"{SECRET} ceo"},
    {"X-Remote-User": "ceo", "X-Auth-Request-User": "ceo"},
]

pytestmark = pytest.mark.skipif(NGINX is None, reason="no nginx: make system-deps installs it")


@contextlib.contextmanager
def dashboard(folder, *options):
    """Start ``lockstep dashboard`` on planted results; gives their alerts and the port."""
    here = place(folder)
    main = [sys.executable, "-c", "from lockstep.commands.cli import main; main()", "dashboard", "--port", "0"]
    where = ["--results", str(here.root), "--cache", str(here.store.cache.parent), "--state"]
    command = [*main, *where, str(folder / "alerts.sqlite"), *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    try:
        yield here.service.alerts, int(re.search(r":(\d+)/ ", server.stdout.readline())[1])
    finally:
        server.terminate()
        server.wait(30)
        server.stdout.close()


@contextlib.contextmanager
def nginx(folder, upstream):
    """Start nginx with the site of ``deploy`` and with ``BARE``; gives the addresses of both."""
    # nginx takes over sockets that listen already: a free port could be taken before it listens there.
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [one.getsockname()[1] for one in sockets]
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run([*request, *names], check=True, capture_output=True)
    (folder / "lockstep.htpasswd").write_text("ana:{PLAIN}of ana\n")
    (folder / "lockstep-user.conf").write_text(f'proxy_set_header X-Lockstep-User "{SECRET} $remote_user";\n')
    places = {
        "127.0.0.1:8050": f"127.0.0.1:{upstream}",
        "listen 443": f"listen 127.0.0.1:{ports[0]}",
        "/etc/ssl/certs/bench.example.org.pem": f"{folder}/cert.pem",
        "/etc/ssl/private/bench.example.org.key": f"{folder}/key.pem",
        "/etc/nginx": str(folder),
    }
    site = SITE.read_text()
    for documented, here in places.items():
        assert documented in site
        site = site.replace(documented, here)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    bare = BARE % (ports[1], folder, folder)
    # Workers of another account could not read the folder.
    user = "user root;" if Path("/proc/self").owner() == "root" else ""
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; worker_processes 1; {user}\nevents {{}}\n"
        f"http {{ access_log off;\n{temporary}{site}{bare} }}\n"
    )
    inherited = [one.fileno() for one in sockets]
    process = subprocess.Popen(
        [NGINX, "-c", folder / "nginx.conf", "-e", folder / "error.log"],
        env=os.environ | {"NGINX": "".join(f"{one};" for one in inherited)},
        pass_fds=inherited,
    )
    for one in sockets:
        one.close()
    try:
        yield [f"https://127.0.0.1:{port}" for port in ports]
    finally:
        process.terminate()
        process.wait(30)


class Browser:
    """What a browser does with the dashboard at an address.

    Args:
        headers: sent with every request, as a client can.
        password: name and password for nginx.
    """

    def __init__(self, folder, address, headers=None, password=None):
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.verify = str(folder / "cert.pem")
        self.session.headers.update(headers or {})
        self.session.auth = password
        self.address = address

    def get(self, path):
        return self.session.get(self.address + path, timeout=60)

    def comment(self, number, text="seen"):
        """Comment an alert by its page's button; gives what the page says."""
        self.get("/_dash-layout")
        [entry] = [one for one in self.get("/_dash-dependencies").json() if "alert-said.children" in one["output"]]
        names = entry["output"].strip(".").split("...")
        body = {
            "output": entry["output"],
            "outputs": [dict(zip(("id", "property"), name.split(".", 1), strict=True)) for name in names],
            "inputs": [dict(part, value=0) for part in entry["inputs"]],
            "state": [dict(part, value=value) for part, value in zip(entry["state"], (text, "", number), strict=True)],
            "changedPropIds": ["alert-comment.n_clicks"],
        }
        answer = self.session.post(f"{self.address}/_dash-update-component", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()["response"]["alert-said"]["children"]


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "secret").touch(0o600)
    (folder / "secret").write_text(f"{SECRET}\n")
    return folder / "secret"


@pytest.fixture(scope="module", params=["addresses", "names"])
def behind(request, tmp_path_factory, secret):
    """Folder, alerts, and both addresses of nginx, before a dashboard that has the proxy's secret or lacks it."""
    folder = tmp_path_factory.mktemp("behind")
    options = ["--proxy", "127.0.0.1"]
    if request.param == "names":
        options += ["--proxy-secret", str(secret)]
    with dashboard(folder, *options) as (alerts, port), nginx(folder, port) as addresses:
        yield request.param, folder, alerts, addresses


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_a_stranger_writes_under_no_name(behind, claim):
    _, folder, alerts, (_, bare) = behind
    number = alerts.alerts()[0].id
    before = alerts.log(number)
    said = Browser(folder, bare, claim).comment(number)
    assert said.startswith("Only people who are signed in can change alerts")
    assert alerts.log(number) == before


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_the_documented_proxy_states_who_signed_in_to_it(behind, claim):
    names, folder, alerts, (site, _) = behind
    number = alerts.alerts()[0].id
    assert Browser(folder, site, claim).get("/").status_code == 401
    assert Browser(folder, site, claim, ("ceo", "a guess")).get("/").status_code == 401
    said = Browser(folder, site, claim, ("ana", "of ana")).comment(number, f"with {claim}")
    if names == "names":
        assert said == "Comment added."
        assert alerts.log(number)[-1].who == "ana"
    else:  # the documented nginx before a dashboard that was started without the secret
        assert said.startswith("Only people who are signed in can change alerts")
