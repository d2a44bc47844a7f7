"""Scripts of pages with what they import, in one file."""

from __future__ import annotations

import pytest

from server.pages.assets import assets
from server.pages.bundle import bundle

FILES = {
    "pages/a.js": 'import { twice as double } from "../lib/b.js";\n\nconsole.log(double(21));\nexport {};\n',
    "lib/b.js": 'import { two } from "./c.js";\n\nexport const twice = (x) => two() * x;\nconst hidden = 1;\n',
    "lib/c.js": 'const hidden = 2;\nexport function two() {\n  import("./later.js");\n  return hidden;\n}\n',
}


def test_imports_come_before_what_imports_them_each_in_its_own_scope() -> None:
    made = bundle(FILES, "pages/a.js")
    assert made.index("const $module0 = (() => {") < made.index("const $module1 = (() => {") < made.index("console.log")
    assert "const { two } = $module0;" in made
    assert "const { twice: double } = $module1;" in made
    assert "return { two };" in made
    assert "export" not in made


def test_what_is_imported_later_is_found_from_the_page() -> None:
    assert 'import("../lib/later.js")' in bundle(FILES, "pages/a.js")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('import * as all from "../lib/c.js";\n', "import names on one line"),
        ("export default 1;\n", "export declarations"),
        ('import { x } from "../lib/none.js";\n', "is not in web/js"),
        ('import { x } from "./a.js";\n', "in a circle: pages/a.js → pages/a.js"),
    ],
)
def test_what_it_does_not_understand_is_refused(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bundle({**FILES, "pages/a.js": source}, "pages/a.js")


def test_every_page_is_one_script_and_each_module_is_in_it_once() -> None:
    pages = [name for name in assets.files if name.startswith("pages/")]
    assert len(pages) > 4
    for name in pages:
        text = assets.files[name].decode()
        labels = [line for line in text.splitlines() if line.startswith("// lib/")]
        assert len(labels) == len(set(labels))
        assert "\nimport {" not in text
