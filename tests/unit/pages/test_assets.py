"""Static files: hashed, compressed, cached for ever; the script data of a page can never end its element."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from server.pages.appearance import local_path
from server.pages.assets import CSS_ORDER, WEB, Assets, assets
from server.pages.render import script_json


def test_every_stylesheet_is_in_the_bundle() -> None:
    assert {path.name for path in (WEB / "css").glob("*.css")} == set(CSS_ORDER)
    assert assets.files["app.css"].decode().startswith(":root{--slot-fp32")


def test_an_address_of_another_build_gives_nothing() -> None:
    assert assets.find(assets.version, "app.css") is not None
    assert assets.find("0" * 16, "app.css") is None
    assert assets.find(assets.version, "../../pyproject.toml") is None
    assert assets.find(assets.version, "tests/points.test.mjs") is None


def test_a_changed_file_changes_every_address(tmp_path: Path) -> None:
    for folder in ("css", "js/lib"):
        (tmp_path / folder).mkdir(parents=True)
    for name in CSS_ORDER:
        (tmp_path / "css" / name).write_text("a{}")
    (tmp_path / "icon.svg").write_text("<svg/>")
    (tmp_path / "js/lib/x.js").write_text("1")
    before = Assets(tmp_path).url("lib/x.js")
    (tmp_path / "js/lib/x.js").write_text("2")
    assert Assets(tmp_path).url("lib/x.js") != before


def test_plotly_comes_from_its_package_compressed() -> None:
    version, name = assets.url("plotly.min.js").split("/")[2:]
    found = assets.find(version, name)
    assert found is not None
    assert len(found.zipped) < 1_700_000
    assert gzip.decompress(found.zipped)[:2_000].find(b"plotly.js") > 0


def test_the_map_stylesheet_that_our_policy_forbids_is_known() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", assets.plotly_style_id)


def test_modules_import_only_what_is_served() -> None:
    for name, content in assets.files.items():
        for target in (
            re.findall(r'^import .* from "(.+)";$', content.decode(), flags=re.MULTILINE)
            if name.endswith(".js")
            else ()
        ):
            assert (Path(name).parent / target).as_posix().replace("pages/../", "") in assets.files, (name, target)


def test_templates_have_no_inline_script_or_style() -> None:
    for template in (WEB / "templates").rglob("*.html"):
        text = template.read_text()
        assert not re.search(r"<script(?![^>]*(?:src=|application/json))", text), template.name
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=", text), template.name


@pytest.mark.parametrize("value", ["</script><script>", "<!--", "\u2028", "&lt;"])
def test_script_data_cannot_end_its_element(value: str) -> None:
    text = str(script_json({"x": value}))
    assert "<" not in text
    assert json.loads(text) == {"x": value}


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "", None]
)
def test_the_theme_switch_never_leads_away(target: str | None) -> None:
    assert local_path(target) == "/"
    assert local_path("/runs/1?x=2") == "/runs/1?x=2"
