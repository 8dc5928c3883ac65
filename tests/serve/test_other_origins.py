"""A real browser that looks at a page of somebody else, which tries to change the service."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from browsers import browser, serving, until
from served_bases import grown

from ibcl.serve import Client, Settings, create_app

ATTACK = """
const [routes, done] = arguments;
const kinds = ["text/plain", "application/x-www-form-urlencoded", "application/json", null];
const calls = routes.flatMap(([method, url]) => kinds.flatMap((kind) => ["no-cors", "cors"].map(
  (mode) => fetch(url, { method, mode, credentials: "include", body: '{"sci-fi": 1}',
    headers: kind === null ? {} : { "Content-Type": kind } }).catch(() => null))));
for (const [, url] of routes) {
  const form = Object.assign(document.createElement("form"), { method: "POST", action: url });
  const frame = Object.assign(document.createElement("iframe"), { name: url });
  form.target = url;
  document.body.append(frame, form);
  form.submit();
  navigator.sendBeacon(url, '{"sci-fi": 1}');
}
Promise.all(calls).then(() => setTimeout(done, 1000));
"""


class Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><body>elsewhere</body>")

    def log_message(self, *_):
        pass


def test_a_page_elsewhere_cannot_undo_a_rollback_nor_change_anything_else(base, tmp_path):
    app = create_app(Settings(base, poll=0.02))
    other = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        with serving(app) as url, Client(url) as client, browser(tmp_path) as driver:
            first = client.tasks().version
            grown(base, 3)
            until(lambda: len(client.tasks().tasks) == 3)
            client.activate(first)
            client.set_preference("ann", {"horror": 1.0})
            before = [client.versions(), client.history("ann"), client.preference("ann")]
            routes = [
                (method.upper(), url + path.format(user="ann", version="newest", token="0" * 12))
                for path, operations in app.openapi()["paths"].items()
                for method in operations
                if method != "get"
            ]
            assert ("POST", f"{url}/v1/versions/newest/activate") in routes
            driver.get(f"http://127.0.0.1:{other.server_port}/")
            driver.execute_async_script(ATTACK, routes)
            after = [client.versions(), client.history("ann"), client.preference("ann")]
            assert after == before
            # The service's own page may.
            driver.get(url)
            driver.execute_async_script(
                "fetch('/v1/versions/newest/activate', {method: 'POST'}).then(arguments[0])"
            )
            assert client.tasks().version != first
    finally:
        other.shutdown()
        other.server_close()
