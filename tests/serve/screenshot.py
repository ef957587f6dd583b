"""Takes the picture of the page that docs/serving.md shows: python -m tests.serve.screenshot PATH.png

Needs what the tests with the marker `browser` need, and pillow, which matplotlib brings.
"""

import io
import shutil
import sys

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.serve.conftest import PATIENCE, running, wait_for

TEXT = "The forge was quiet. Nobody had lit the fire since Tuesday."
COLOURS = 64  # a palette makes the file a third as large


def main(path: str, scheme: str = "light", width: str = "1040") -> None:
    with running() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": int(width), "height": 400}, color_scheme=scheme)
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(server.url)
        page.check("#compare")
        page.locator("[aria-label='Speech B'] [data-part=model]").select_option("tacotron2-hifigan")
        for model in ("fastpitch-hifigan", "tacotron2-hifigan"):  # loaded, as in a server that has run
            server.speak(model=model)
        page.fill("#text", TEXT)
        page.click("#speak")
        place = page.locator("[aria-label='Speech B'] [data-part=position]")
        wait_for(lambda: float(place.input_value()) > 0.9, "B")
        picture = page.screenshot(full_page=True)
        browser.close()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
