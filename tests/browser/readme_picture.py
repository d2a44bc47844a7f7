"""The picture in the README: the top of the demo experiment's page, from the data folder of a real `make demo`.

python tests/browser/readme_picture.py DATA_DIR [EXPERIMENT_ID]        writes docs/images/experiment.png
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from dashboard import chromium, served, session_cookie, signed_in, wait_for_charts
from PIL import Image

from server.db.upgrade import open_database
from server.settings import Settings

TARGET = Path(__file__).parents[2] / "docs" / "images" / "experiment.png"
WIDTH, HEIGHT = 1280, 1500


def main(data_dir: Path, experiment_id: int) -> None:
    """Look at a copy, so that the folder stays as it is."""
    with tempfile.TemporaryDirectory() as copied:
        for file in data_dir.glob("ampboard.sqlite3*"):
            shutil.copy(file, copied)
        settings = Settings(data_dir=Path(copied))
        database = open_database(settings)
        with served(settings, database) as base, chromium() as browser:
            context = signed_in(browser, base, session_cookie(database), width=WIDTH)
            page = context.new_page()
            page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
            page.goto(f"/experiments/{experiment_id}")
            wait_for_charts(page)
            page.wait_for_timeout(1000)
            shot = page.screenshot()
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(io.BytesIO(shot)) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(TARGET, optimize=True)
    sys.stdout.write(f"{TARGET}: {TARGET.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
