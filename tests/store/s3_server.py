"""A real S3 server on loopback; run by an interpreter that has moto, it prints its port.

It answers one request after another, so that a condition and its put are one step, as they are in
S3. With ``ignore`` it drops the conditions, as some stores do.
"""

import sys
from typing import Any


def main(ignore: bool) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = DomainDispatcherApplication(create_backend_app)

    def serve(environ: dict[str, Any], start_response: Any) -> Any:
        if ignore:
            environ.pop("HTTP_IF_MATCH", None)
            environ.pop("HTTP_IF_NONE_MATCH", None)
        return application(environ, start_response)

    server = make_server("127.0.0.1", 0, serve, threaded=False)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main("ignore" in sys.argv)
