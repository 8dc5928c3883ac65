"""A hub of our own: as much of the Hugging Face hub's interface as pushing and fetching needs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    repositories: dict[str, dict[str, bytes]]

    def log_message(self, *_):
        pass

    def _send(self, status, data=b"", **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(data), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _json(self, contents):
        self._send(200, json.dumps(contents).encode(), Content_Type="application/json")

    def _body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self):
        body = self._body()
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, [asked.get("organization"), asked["name"]]))
            self.repositories.setdefault(name, {})
            host = self.headers["Host"]
            return self._json({"url": f"http://{host}/{name}"})
        if self.path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        name, action = re.match(r"/api/models/(.+)/(preupload|commit)/", self.path).groups()
        if action == "preupload":
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return self._json({"files": files})
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                self.repositories[name][value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "deletedFile":
                del self.repositories[name][value["path"]]
        address = f"http://{self.headers['Host']}/{name}/commit/{self._sha(name)}"
        return self._json({"success": True, "commitOid": self._sha(name), "commitUrl": address})

    def _sha(self, name):
        contents = sorted(self.repositories[name].items())
        return hashlib.sha1(repr(contents).encode()).hexdigest()

    def do_GET(self):
        path = self.path.partition("?")[0]
        found = re.match(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+|/tree/[^/]+.*)?$", path)
        if found:
            name, what = found.groups()
            if name not in self.repositories:
                return self._send(404, b"{}", X_Error_Code="RepoNotFound")
            files = self.repositories[name]
            if what and what.startswith("/tree"):
                return self._json(
                    [
                        {"type": "file", "path": p, "size": len(d), "oid": _oid(d)}
                        for p, d in files.items()
                    ]
                )
            siblings = [{"rfilename": path} for path in files]
            return self._json({"id": name, "sha": self._sha(name), "siblings": siblings})
        found = re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)$", path)
        if found:
            name, _, file = found.groups()
            data = self.repositories.get(name, {}).get(file)
            if data is not None:
                etag = f'"{_oid(data)}"'
                return self._send(200, data, ETag=etag, X_Repo_Commit=self._sha(name))
        return self._send(404, b"", X_Error_Code="EntryNotFound")

    do_HEAD = do_GET  # noqa: N815


def _oid(data):
    return hashlib.sha1(data).hexdigest()


@contextmanager
def running():
    """Yield the address of a hub, and its repositories: names to files."""
    repositories = {}
    handler = type("Own", (Handler,), {"repositories": repositories})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", repositories
    finally:
        server.shutdown()
        server.server_close()
