"""How the command line words errors of the library.

The library speaks of its own settings (``regression=True``); here, and nowhere else, they become
the options of the command that was given (``--regression``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import requires

from ibcl.errors import ChangedSinceError, ExistsError, OccupiedError, reason
from ibcl.names import printable

# What wrong files, columns, preferences or settings raise; everything else is a fault of ours.
USER_ERRORS = (ValueError, OSError, LookupError, ImportError, MemoryError)

_ADVICE: dict[type[Exception], str] = {
    ExistsError: "Add --force to replace it",
    ChangedSinceError: "Give the command again to go on from there",
    OccupiedError: "Give another folder",
}
# Sentences whose own way out, after the semicolon, is not one of the command line.
_WAY_OUT_IN_PYTHON = (ChangedSinceError, OccupiedError)
# A requirement of an extra: its package and the extra.
_EXTRA = re.compile(r"""([\w-]+).*extra == ['"]([\w-]+)['"]""")
_OUT_OF_MEMORY = re.compile("can't allocate memory|not enough memory|out of memory", re.IGNORECASE)


def sentence(error: Exception, options: Mapping[str, str] | None = None) -> str:
    """Say in one sentence what went wrong.

    Parameters
    ----------
    options : the command's options by the names of its settings.

    Examples
    --------
    >>> sentence(ValueError("The file is empty"))
    'The file is empty.'
    >>> sentence(FileNotFoundError(2, "No such file or directory", "a.csv"))
    'a.csv: no such file or directory.'
    >>> sentence(OSError(28))
    'No space left on device.'
    >>> sentence(UnicodeEncodeError("utf-8", chr(0xD800), 0, 1, "surrogates not allowed"))[:58]
    "Some text cannot be read or written: 'utf-8' codec can't e"
    >>> sentence(ZeroDivisionError("division by zero")).split(";")[0]
    'Something went wrong inside ibcl (ZeroDivisionError: division by zero)'
    """
    if isinstance(error, ModuleNotFoundError):
        text = f"This command needs the package {error.name!r}: {_how_to_install(error.name)}"
    elif out_of_memory(error):
        text = (
            "There is not enough memory for this; use fewer rows, columns or classes, a smaller "
            "network, or a machine with more memory"
        )
    elif isinstance(error, OSError):
        why = reason(error)
        where = error.filename
        text = why if where is None else f"{where}: {why[0].lower()}{why[1:]}"
    elif isinstance(error, UnicodeError):
        text = f"Some text cannot be read or written: {error}"
    elif isinstance(error, USER_ERRORS):
        text = str(error.args[0] if error.args else error)
        if isinstance(error, _WAY_OUT_IN_PYTHON):
            text = text.split(";")[0]
        text = in_options(text, options or {})
        text = ". ".join([text.rstrip("."), *_advice(error)])
    else:
        text = printable(" ".join(f"{type(error).__name__}: {error}".split()))
        return f"Something went wrong inside ibcl ({text}); run `ibcl --debug ...` to see where."
    return printable(" ".join(text.split())).rstrip(".") + "."


def _how_to_install(module: str | None) -> str:
    """Name the extra that brings a module, where one does.

    Examples
    --------
    >>> _how_to_install("pyarrow"), _how_to_install("elsewhere")
    ("pip install 'ibcl[parquet]'", 'install it and try again')
    """
    package = (module or "").partition(".")[0].replace("_", "-").lower()
    for requirement in requires("ibcl") or ():
        found = _EXTRA.match(requirement)
        if found and found[1].replace("_", "-").lower() == package:
            return f"pip install 'ibcl[{found[2]}]'"
    return "install it and try again"


def out_of_memory(error: Exception) -> bool:
    """Tell whether there was not enough memory, which torch says in its own way."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None
    )


def exit_code(error: Exception) -> int:
    """Return 2 for what the user can mend, and 1 for a fault of ours."""
    return 2 if isinstance(error, USER_ERRORS) or out_of_memory(error) else 1


def in_options(text: str, options: Mapping[str, str]) -> str:
    """Replace settings of the library by options of a command.

    Examples
    --------
    >>> in_options("Predict a value with regression=True.", {"regression": "--regression"})
    'Predict a value with --regression.'
    >>> in_options("Name them with classes=, or give w='a'.", {"classes": "--classes", "w": "-w"})
    'Name them with --classes, or give -w a.'
    >>> in_options("Give a share such as calibration=0.2.", {"calibration": "--calibration"})
    'Give a share such as --calibration 0.2.'
    """
    if not options:
        return text
    names = "|".join(map(re.escape, options))
    number = r"\d+(?:\.\d+)?(?![\w.]*\d)"
    pattern = rf"\b({names})=(?:(True)\b|['\"]([\w-]+)['\"]|({number})|(?=[\s.;,)]|$))"
    return re.sub(
        pattern, lambda found: " ".join(filter(None, (options[found[1]], found[3], found[4]))), text
    )


def _advice(error: Exception) -> list[str]:
    return [advice for kind, advice in _ADVICE.items() if isinstance(error, kind)]
