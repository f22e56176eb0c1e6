"""Writes a figure as PNG, SVG and an interactive page; none of them needs a network."""

import functools
import json
from pathlib import Path
from typing import NamedTuple

import altair as alt
import vl_convert

SCALE = 2.0  # of the PNG: sharp in print

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body style="margin: 24px"><div id="figure"></div>
<script>{bundle}</script>
<script>vegaEmbed("#figure", {spec}, {{renderer: "svg", actions: true}});</script>
</body></html>
"""


class Drawn(NamedTuple):
    """A figure as it goes into the report."""

    name: str
    svg: str
    spec: str  # JSON, safe inside a script element


@functools.cache
def bundle() -> str:
    """Return the script that draws interactive figures, all of it, so that a page needs nothing else."""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script")


def write_figure(chart: alt.TopLevelMixin, name: str, folder: Path) -> Drawn:
    """Write a chart as `name`.png, .svg and .html, and return it for the report."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = json.dumps(chart.to_dict(), ensure_ascii=False)
    svg = vl_convert.vegalite_to_svg(spec)
    (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    (folder / f"{name}.png").write_bytes(vl_convert.svg_to_png(svg, scale=SCALE))
    safe = spec.replace("</", "<\\/")
    page = PAGE.format(title=name, bundle=bundle(), spec=safe)
    (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return Drawn(name, svg, safe)
