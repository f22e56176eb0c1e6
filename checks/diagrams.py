"""The Mermaid diagrams of docs/ as pictures, because a page of the site loads no script from elsewhere.

A picture is named after the digest of its source, so that a changed diagram has none until `make pictures` draws it.
"""

import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parents[1] / "docs"
FIGURES = DOCS / "figures"
DIAGRAM = re.compile(r"^(.*)\n\n```mermaid\n((?:.*\n)*?)```$", flags=re.MULTILINE)
"""The line above a diagram, which says what it shows, and its source."""
MERMAID = "mermaid@11.12.0"  # an npm package; needed to draw, not to read
DRAW = """async (source) => {
  mermaid.initialize({startOnLoad: false, theme: "neutral", fontFamily: "sans-serif", htmlLabels: false,
                      flowchart: {htmlLabels: false}});
  return (await mermaid.render("diagram", source)).svg;
}"""


def picture_of(source: str) -> str:
    """Return the name of the picture of a diagram."""
    return f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"


def with_pictures(text: str) -> str:
    """Return a page with a picture in place of each diagram.

    Raises:
        FileNotFoundError: A diagram has not been drawn since it was changed.
    """

    def shown(found: re.Match[str]) -> str:
        name = picture_of(found[2])
        if not (FIGURES / name).exists():
            raise FileNotFoundError(f"A diagram has no picture {name}: `make pictures` draws it.")
        return f"{found[1]}\n\n![{found[1].replace('`', '').rstrip(':')}](figures/{name})"

    return DIAGRAM.sub(shown, text)


def script() -> str:
    """Return Mermaid's script, from npm."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["npm", "pack", "--silent", MERMAID]
        packed = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout.split()[-1]
        with tarfile.open(Path(folder) / packed) as archive:
            file = archive.extractfile("package/dist/mermaid.min.js")
            assert file is not None
            return file.read().decode()


def main() -> None:
    """Draw the diagrams that have no picture, and delete pictures that no page has."""
    sources = [source for page in sorted(DOCS.glob("*.md")) for _, source in DIAGRAM.findall(page.read_text())]
    wanted = {picture_of(source): source for source in sources}
    FIGURES.mkdir(exist_ok=True)
    for old in FIGURES.glob("diagram-*.svg"):
        if old.name not in wanted:
            old.unlink()
    missing = {name: source for name, source in wanted.items() if not (FIGURES / name).exists()}
    if not missing:
        return
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = chromium.new_page()
        page.set_content("<!doctype html>")
        page.add_script_tag(content=script())
        for name, source in missing.items():
            drawn = page.evaluate(DRAW, source)
            (FIGURES / name).write_text(re.sub(r"(\.\d\d)\d+", r"\1", drawn) + "\n")  # hundredths of a point are enough
        chromium.close()


if __name__ == "__main__":
    main()
