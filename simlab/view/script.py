"""The JavaScript of the viewer as one module: its parts lie in ``browser/`` as modules of their own, and nothing has to be built."""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from typing import Final

PARTS: Final = (
    "base", "link", "decode", "paint", "side", "pictures", "series", "map", "table", "timeline", "menus", "controls", "traits", "theme",
    "hands", "follow", "custom", "playing", "troubles", "viewer", "widget",
)  # fmt: skip
_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./[a-z]+\.js";\n', re.MULTILINE)
_REMARK: Final = re.compile(r"^(//.*|/\*\*.*\*/|/\*\*.*|\*.*)$")
_EXPORT: Final = re.compile(r"^export (?=(async )?(function|class|const|let) )", re.MULTILINE)


def _read(name: str) -> str:
    return files("simlab.view").joinpath("browser", name).read_text(encoding="utf-8")


@functools.cache
def module(*more: str) -> str:
    """Return the viewer as one ES module without imports.

    Parameters
    ----------
    *more : str
        Further parts, after those of the widget.

    Examples
    --------
    >>> "import {" in module()
    False
    """
    texts = [_IMPORT.sub("", _read(f"{part}.js")) for part in (*PARTS, *more)]
    text = _EXPORT.sub("", "\n".join(texts)) + "\nexport default { render };\n"
    # A notebook may keep this with every viewer: remarks and indents stay here. No text in it goes over several lines.
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not _REMARK.match(line)) + "\n"


@functools.cache
def style() -> str:
    """Return the style sheet of the viewer."""
    return _read("viewer.css")
