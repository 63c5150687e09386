"""Plots of a report as SVG, without a plotting library: there are only two."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, log10

WIDTH_PX, ROW_PX, LEFT_PX, RIGHT_PX = 960, 22, 400, 60
TEXT_COLOUR, MUTED_COLOUR, MET, MISSED = "#1f2328", "#8c959f", "#2f7d4f", "#b3362b"
CURVE_COLOURS = ("#2f5d8a", "#b3362b", "#2f7d4f", "#8a5a2f", "#6b4e9b", "#1f2328")


def _svg(width: int, height: int, body: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
    font = 'font-family="system-ui, sans-serif" font-size="12">'
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head + font, ground, *body, "</svg>"]) + "\n"


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", colour: str = TEXT_COLOUR
) -> str:
    content = escape(text)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{content}</text>'


def _line(
    start: tuple[float, float], end: tuple[float, float], colour: str, attributes: str = ""
) -> str:
    (x1, y1), (x2, y2) = start, end
    coordinates = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {coordinates} stroke="{colour}" {attributes}/>'


def budgets(rows: Sequence[tuple[str, float, float, float]]) -> str:
    """Return the SVG of figures (what, least, median, most) as shares of budgets, log scale."""
    shares = [max(value, 0.001) for _, *values in rows for value in values]
    low = min([floor(log10(min(shares, default=1))), -1])
    high = max([log10(max(shares, default=1)), 0.3])

    def x(share: float) -> float:
        place = (log10(max(share, 10**low)) - low) / (high - low)
        return LEFT_PX + place * (WIDTH_PX - LEFT_PX - RIGHT_PX)

    height = 50 + ROW_PX * len(rows)
    body = [
        _text(
            LEFT_PX, 18, "share of the budget; left of the line: within budget", colour=MUTED_COLOUR
        )
    ]
    body.append(_line((x(1), 26), (x(1), height - 10), TEXT_COLOUR, 'stroke-dasharray="4 3"'))
    for number, (what, least, median, most) in enumerate(rows):
        y = 44 + ROW_PX * number
        colour = MET if median <= 1 else MISSED
        body.append(_text(LEFT_PX - 10, y, what, anchor="end"))
        body.append(_line((x(least), y - 4), (x(most), y - 4), colour, 'stroke-width="2"'))
        body.append(f'<circle cx="{x(median):.1f}" cy="{y - 4}" r="4" fill="{colour}"/>')
        body.append(_text(x(max(most, median)) + 8, y, f"{median:.2f}", colour=MUTED_COLOUR))
    return _svg(WIDTH_PX, height, body)


def growth(curves: dict[str, list[tuple[float, float]]], slopes: dict[str, float]) -> str:
    """Return the SVG of seconds over megabytes, both on log scales, a curve per operation."""
    points = [point for curve in curves.values() for point in curve]
    sizes, seconds = [p[0] for p in points], [p[1] for p in points]
    left, top, width, height = 70, 20, 560, 380
    x0, x1 = log10(min(sizes)), log10(max(sizes)) + 1e-9
    y0, y1 = floor(log10(min(seconds))), floor(log10(max(seconds))) + 1

    def position(point: tuple[float, float]) -> tuple[float, float]:
        x = left + (log10(point[0]) - x0) / (x1 - x0) * width
        return x, top + height - (log10(point[1]) - y0) / (y1 - y0) * height

    body = []
    for power in range(y0, y1 + 1):
        y = position((min(sizes), 10.0**power))[1]
        body.append(_line((left, y), (left + width, y), "#d0d7de"))
        body.append(
            _text(left - 8, y + 4, f"{10.0**power * 1e3:g} ms", anchor="end", colour=MUTED_COLOUR)
        )
    for size in sorted(set(sizes)):
        x = position((size, 10.0**y0))[0]
        body.append(
            _text(x, top + height + 20, f"{size:g} MB", anchor="middle", colour=MUTED_COLOUR)
        )
    for number, (name, curve) in enumerate(curves.items()):
        colour = CURVE_COLOURS[number % len(CURVE_COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(position, sorted(curve)))
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        label = f"{name} (slope {slopes[name]:.2f})"
        body.append(_text(left + width + 20, top + 20 + 24 * number, label, colour=colour))
    return _svg(WIDTH_PX, top + height + 40, body)
