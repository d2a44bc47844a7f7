"""A page's script with the modules it imports in one file, so that a page is one request instead of ten.

The modules stay as they are written, each in a function of its own: nothing is renamed or left out. It understands what
`web/js` uses and refuses the rest: imports of names on one line, exports of declarations, no cycles.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

_IMPORT = re.compile(r'^import \{ ([^}]+) \} from "(\.{1,2}/[^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function |class |const )", re.MULTILINE)
_EXPORTED = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)
_DYNAMIC = re.compile(r'\bimport\("(\.{1,2}/[^"]+\.js)"\)')
_NOT_UNDERSTOOD = re.compile(r"^(?:import\b(?! ?\()|export\b).*$", re.MULTILINE)


def bundle(files: Mapping[str, str], entry: str) -> str:
    """The script ``entry`` with everything it imports before it; ``files`` are sources by their path below `web/js`.

    Raises:
        ValueError: a module imports itself in a circle, imports a file that is not there, or uses another form of
            import or export.
    """
    order: list[str] = []
    _visit(files, entry, order, ())
    places = {name: f"$module{index}" for index, name in enumerate(order)}
    parts = [_as_function(files[name], name, entry, places) for name in order[:-1]]
    return "\n".join([*parts, _body(files[entry], entry, entry, places)])


def _visit(files: Mapping[str, str], name: str, order: list[str], path: tuple[str, ...]) -> None:
    """Depth first, what is imported before what imports it."""
    if name in path:
        raise ValueError(f"modules import each other in a circle: {' → '.join([*path, name])}")
    if name not in files:
        raise ValueError(f"{path[-1] if path else 'a page'} imports {name}, which is not in web/js")
    if name in order:
        return
    for _, target in _IMPORT.findall(files[name]):
        _visit(files, _resolved(name, target), order, (*path, name))
    order.append(name)


def _resolved(name: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def _as_function(source: str, name: str, entry: str, places: Mapping[str, str]) -> str:
    exported = ", ".join(_EXPORTED.findall(source))
    body = _body(source, name, entry, places)
    return f"// {name}\nconst {places[name]} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();"


def _body(source: str, name: str, entry: str, places: Mapping[str, str]) -> str:
    """The source with imports as constants, exports as declarations, and addresses as seen from ``entry``."""

    def constants(found: re.Match[str]) -> str:
        return f"const {{ {found[1].replace(' as ', ': ')} }} = {places[_resolved(name, found[2])]};"

    def address(found: re.Match[str]) -> str:
        seen = posixpath.relpath(_resolved(name, found[1]), posixpath.dirname(entry) or ".")
        return f'import("{seen if seen.startswith(".") else "./" + seen}")'

    text = _DYNAMIC.sub(address, _EXPORT.sub("", _IMPORT.sub(constants, source.replace("export {};", ""))))
    wrong = _NOT_UNDERSTOOD.search(text)
    if wrong:
        raise ValueError(f"{name}: {wrong[0]!r} is not bundled: import names on one line, export declarations")
    return text
