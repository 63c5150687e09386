"""Plots of a report, as SVG written by hand: no library is worth two pictures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, log10

WIDTH, ROW, LEFT, RIGHT = 960, 22, 400, 60
INK, QUIET, HELD, MISSED = "#1f2328", "#8c959f", "#2f7d4f", "#b3362b"
LINES = ("#2f5d8a", "#b3362b", "#2f7d4f", "#8a5a2f", "#6b4e9b", "#1f2328")


def _svg(width: int, height: int, body: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
    font = 'font-family="system-ui, sans-serif" font-size="12">'
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head + font, ground, *body, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, *, end: str = "start", ink: str = INK) -> str:
    said = escape(text)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{end}" fill="{ink}">{said}</text>'


def _line(start: tuple[float, float], end: tuple[float, float], ink: str, more: str = "") -> str:
    (x1, y1), (x2, y2) = start, end
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{ink}" {more}/>'


def budgets(rows: Sequence[tuple[str, float, float, float]]) -> str:
    """Each figure as a share of its budget: (what, least, median, most), on a scale of tens."""
    shares = [max(value, 0.001) for _, *values in rows for value in values]
    low = min([floor(log10(min(shares, default=1))), -1])
    high = max([log10(max(shares, default=1)), 0.3])

    def x(share: float) -> float:
        place = (log10(max(share, 10**low)) - low) / (high - low)
        return LEFT + place * (WIDTH - LEFT - RIGHT)

    height = 50 + ROW * len(rows)
    body = [_text(LEFT, 18, "share of the budget; left of the line is within it", ink=QUIET)]
    body.append(_line((x(1), 26), (x(1), height - 10), INK, 'stroke-dasharray="4 3"'))
    for number, (what, least, middle, most) in enumerate(rows):
        y = 44 + ROW * number
        ink = HELD if middle <= 1 else MISSED
        body.append(_text(LEFT - 10, y, what, end="end"))
        body.append(_line((x(least), y - 4), (x(most), y - 4), ink, 'stroke-width="2"'))
        body.append(f'<circle cx="{x(middle):.1f}" cy="{y - 4}" r="4" fill="{ink}"/>')
        body.append(_text(x(max(most, middle)) + 8, y, f"{middle:.2f}", ink=QUIET))
    return _svg(WIDTH, height, body)


def growth(curves: dict[str, list[tuple[float, float]]], slopes: dict[str, float]) -> str:
    """Seconds over megabytes, both on scales of tens, a curve for each operation."""
    points = [point for curve in curves.values() for point in curve]
    sizes, taken = [p[0] for p in points], [p[1] for p in points]
    left, top, width, height = 70, 20, 560, 380
    x0, x1 = log10(min(sizes)), log10(max(sizes)) + 1e-9
    y0, y1 = floor(log10(min(taken))), floor(log10(max(taken))) + 1

    def at(point: tuple[float, float]) -> tuple[float, float]:
        x = left + (log10(point[0]) - x0) / (x1 - x0) * width
        return x, top + height - (log10(point[1]) - y0) / (y1 - y0) * height

    body = []
    for power in range(y0, y1 + 1):
        y = at((min(sizes), 10.0**power))[1]
        body.append(_line((left, y), (left + width, y), "#d0d7de"))
        body.append(_text(left - 8, y + 4, f"{10.0**power * 1e3:g} ms", end="end", ink=QUIET))
    for size in sorted(set(sizes)):
        x = at((size, 10.0**y0))[0]
        body.append(_text(x, top + height + 20, f"{size:g} MB", end="middle", ink=QUIET))
    for number, (name, curve) in enumerate(curves.items()):
        ink = LINES[number % len(LINES)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, sorted(curve)))
        body.append(f'<polyline points="{path}" fill="none" stroke="{ink}" stroke-width="2"/>')
        told = f"{name} (slope {slopes[name]:.2f})"
        body.append(_text(left + width + 20, top + 20 + 24 * number, told, ink=ink))
    return _svg(WIDTH, top + height + 40, body)
