"""Courses over time, as text and as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np

from hetplan.simulator.run_summary import Timeline
from hetplan.simulator.timeline import timeline_svg, timeline_text

RISING = Timeline(
    width_s=2.0,
    waiting=np.arange(120.0),
    utilisation=np.full(120, 0.5),
    late=np.r_[np.zeros(60), np.ones(60)],
    rate_qps=np.full(120, 1234.5),
    workers=np.full(120, 3.0),
)


def test_text_shows_every_course_on_one_line() -> None:
    lines = timeline_text(RISING, width=60).splitlines()
    assert len(lines) == 6
    assert "most 1,23" in lines[0]
    assert lines[1].split()[2] == "".join(sorted(lines[1].split()[2]))
    assert lines[1].endswith("most 118")
    assert lines[4].split()[4] == "▁" * 30 + "█" * 30
    assert lines[5].split() == ["0", "s", "240", "s"]


def test_text_of_nothing_is_flat() -> None:
    flat = np.zeros(5)
    text = timeline_text(Timeline(1.0, flat, flat, flat, flat, flat))
    assert "█" not in text
    assert "nan" not in text


def test_the_picture_is_well_formed_and_stays_in_its_frame() -> None:
    root = ElementTree.fromstring(timeline_svg(RISING, title="a < b & c"))
    width, height = (float(value) for value in root.attrib["viewBox"].split()[2:])
    shapes = [item for item in root.iter() if item.tag.endswith("polygon")]
    assert len(shapes) == 5
    for shape in shapes:
        for point in shape.attrib["points"].split():
            x, y = (float(value) for value in point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
    assert root.attrib["aria-label"] == "a < b & c"
