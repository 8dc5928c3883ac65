"""A service that gives every user the predictions of their own model.

`app` puts it together: `routes` are what it answers, `versions` and `served` the knowledge bases it
answers from, `preferences` and `tokens` what it keeps in a database (`database`, `migrations`),
`batching` dynamic batching, and `page`
the explorer. `client` is the other end.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ibcl.serve.app import create_app
    from ibcl.serve.client import Client, ServiceError
    from ibcl.serve.settings import Settings
else:
    # A client needs no web server, and a server no client.
    _HOMES = {
        "Client": "client",
        "ServiceError": "client",
        "Settings": "settings",
        "create_app": "app",
    }

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            try:
                return getattr(import_module(f"ibcl.serve.{_HOMES[name]}"), name)
            except ModuleNotFoundError as error:
                raise ImportError(
                    f"The service and its client need the package {error.name!r}: pip install "
                    "'ibcl[serve]'."
                ) from error
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Client", "ServiceError", "Settings", "create_app"]
