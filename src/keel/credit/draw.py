"""A reference graph as text for the terminal, and as one self-contained HTML page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from keel.credit.graph import Edge, Graph
from keel.credit.progress import Progress, Vertex
from keel.credit.pushes import PushGraph
from keel.credit.subgoals import SubGoalGraph

_NODE_WIDTH, _NODE_HEIGHT, _GAP_X, _GAP_Y, _TOP, _LEFT = 176, 60, 200, 36, 56, 16
_LABEL_CHARS, _NODE_CHARS, _NODE_LINES, _TITLE_CHARS = 30, 26, 3, 48


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a drawing."""

    title: str
    vertices: tuple[Vertex, ...]


def columns_of(graph: Graph) -> tuple[Column, ...]:
    """The vertices of verified edges, by column; partial states of a sub-goal get columns of their own, by how much is met."""
    place: dict[Vertex, tuple[int, int]] = {}
    for edge, _ in graph.edges():
        for vertex in (edge.source, edge.target):
            met = len(vertex.met) if isinstance(vertex, Progress) else 0
            place.setdefault(vertex, (graph.column(vertex), met))
    titles = graph.columns()
    return tuple(
        Column(
            titles[where[0]] if not where[1] else f"towards: {titles[where[0] + 1]}",
            tuple(sorted((v for v, at in place.items() if at == where), key=str)),
        )
        for where in sorted(set(place.values()))
    )


def as_text(graph: Graph, task_id: str) -> str:
    """The graph in lines: columns with their vertices and outgoing verified edges, unordered requirements, verified paths.

    Args:
        graph: what to draw.
        task_id: for the headline.
    """
    counts: dict[Vertex, list[tuple[Edge, int]]] = {}
    for edge, count in graph.edges():
        counts.setdefault(edge.source, []).append((edge, count))
    names = vertex_names(graph)
    lines = [
        f"{task_id}",
        _size(graph),
    ]
    for number, column in enumerate(columns_of(graph)):
        lines += ["", f"[{number}] {column.title}"]
        for vertex in column.vertices:
            lines.append(f"    {names[vertex]}")
            for edge, count in counts.get(vertex, []):
                lines.append(f"      --{edge.action} (x{count})--> {names[edge.target]}")
    if isinstance(graph, SubGoalGraph):
        free = [goal for goal in graph.subgoals if len(goal.requirements - goal.automatic) > 1]
        lines += [""] if free else []
        lines += [f"any order in {g.name!r}: {', '.join(sorted(g.requirements - g.automatic))}" for g in free]
    lines += ["", "verified paths:" if graph.paths else "no verified path"]
    lines += [f"  {number}. {' -> '.join(path)}" for number, path in enumerate(graph.paths, start=1)]
    return "\n".join(lines)


def vertex_names(graph: Graph) -> Mapping[Vertex, str]:
    """Short names for a drawing. Rooms and state keys are numbered in rank order; completion states say what is met."""
    names: dict[Vertex, str] = {}
    for edge, _ in graph.edges():
        for vertex in (edge.source, edge.target):
            if vertex in names:
                continue
            if isinstance(vertex, Progress):
                names[vertex] = str(vertex)
            elif vertex == "success":
                names[vertex] = "success"
            else:
                names[vertex] = f"{'boxes' if isinstance(graph, PushGraph) else 'state'} {len(names) + 1}"
    return names


def as_html(graph: Graph, task_id: str) -> str:
    """The graph as one HTML page with an inline SVG: no script, no link, opens anywhere.

    Args:
        graph: what to draw.
        task_id: for the title.
    """
    paths = "".join(f"<li>{escape(' → '.join(path))}</li>" for path in graph.paths)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Reference graph of {escape(task_id)}</title>'
        "<style>body{font:14px system-ui,sans-serif;margin:24px;color:#1c2733}svg text{font:12px system-ui,sans-serif}"
        ".node{fill:#eef4fb;stroke:#4a78a8}.done{fill:#e5f4e8;stroke:#3d8a4e}.edge{stroke:#7b8794;fill:none}"
        ".action{fill:#33475b}.title{font-weight:600}.plate{fill:#fff;opacity:.88}</style>"
        f"<h1>Reference graph</h1><p><code>{escape(task_id)}</code>: {_size(graph)}. "
        "A line is as thick as it was often verified.</p>"
        f'<div style="overflow-x:auto">{as_svg(graph)}</div><h2>Verified paths</h2><ol>{paths or "<li>none yet</li>"}</ol></html>'
    )


def _size(graph: Graph) -> str:
    vertices = "1 vertex" if graph.num_vertices == 1 else f"{graph.num_vertices} vertices"
    edges = f"{graph.num_edges} verified edge{'s' * (graph.num_edges != 1)}"
    return f"{vertices}, {edges}, {graph.num_paths} verified success{'es' * (graph.num_paths != 1)}"


def as_svg(graph: Graph) -> str:
    """The drawing alone: columns from left to right, edges labelled with action and count."""
    columns = columns_of(graph)
    names = vertex_names(graph)
    position = _positions(columns)
    rows = max((len(column.vertices) for column in columns), default=1)
    fan = max((len(found) for found in _parallel(graph).values()), default=1)
    height = _TOP + rows * (_NODE_HEIGHT + _GAP_Y) + 18 * fan
    width = 2 * _LEFT + max(len(columns), 1) * (_NODE_WIDTH + _GAP_X) - _GAP_X
    last = len(graph.columns()) - 1
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img">', _ARROW]
    for number, column in enumerate(columns):
        x = _LEFT + number * (_NODE_WIDTH + _GAP_X)
        parts.append(f'<text class="title" x="{x}" y="32">{escape(_cut(column.title, _TITLE_CHARS))}</text>')
    labels: list[str] = []
    for ends, found in _parallel(graph).items():
        parts += [_line(position[ends[0]], position[ends[1]], found)]
        labels += _labels(position[ends[0]], position[ends[1]], found)
    for vertex, (x, y) in position.items():
        kind = "node done" if graph.column(vertex) == last else "node"
        parts.append(
            f"<g><title>{escape(_hint(graph, vertex))}</title>"
            f'<rect class="{kind}" x="{x}" y="{y}" width="{_NODE_WIDTH}" height="{_NODE_HEIGHT}" rx="8"/>{_caption(names[vertex], x, y)}</g>'
        )
    return "".join([*parts, *labels, "</svg>"])


_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="12" markerHeight="12" markerUnits="userSpaceOnUse" '
    'orient="auto"><path d="M0 0L10 5L0 10z" fill="#7b8794"/></marker></defs>'
)


def _positions(columns: Sequence[Column]) -> dict[Vertex, tuple[int, int]]:
    return {
        vertex: (_LEFT + number * (_NODE_WIDTH + _GAP_X), _TOP + row * (_NODE_HEIGHT + _GAP_Y))
        for number, column in enumerate(columns)
        for row, vertex in enumerate(column.vertices)
    }


def _parallel(graph: Graph) -> dict[tuple[Vertex, Vertex], list[tuple[str, int]]]:
    """Verified actions with counts, by their two ends: drawn as one line with several labels."""
    found: dict[tuple[Vertex, Vertex], list[tuple[str, int]]] = {}
    for edge, count in graph.edges():
        found.setdefault((edge.source, edge.target), []).append((edge.action, count))
    return found


def _line(start: tuple[int, int], end: tuple[int, int], found: Sequence[tuple[str, int]]) -> str:
    x1, y1, x2, y2 = start[0] + _NODE_WIDTH, start[1] + _NODE_HEIGHT / 2, end[0], end[1] + _NODE_HEIGHT / 2
    bend = (x2 - x1) / 2
    width = min(1 + sum(count for _, count in found) ** 0.5, 6)
    return (
        f'<path class="edge" stroke-width="{width:.1f}" marker-end="url(#arrow)" '
        f'd="M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"/>'
    )


def _labels(start: tuple[int, int], end: tuple[int, int], found: Sequence[tuple[str, int]]) -> list[str]:
    """Labels under the middle of a line; edges that skip columns are labelled near their start, where no node lies."""
    gap = end[0] - start[0] - _NODE_WIDTH
    x = start[0] + _NODE_WIDTH + min(gap, _GAP_X) / 2
    share = min(gap, _GAP_X) / 2 / gap
    y = start[1] + _NODE_HEIGHT / 2 + (end[1] - start[1]) * share * share * (3 - 2 * share)
    lines: list[str] = []
    for number, (action, count) in enumerate(found):
        text = _cut(action, _LABEL_CHARS) + (f" ×{count}" if count > 1 else "")
        at = y - 6 + 15 * number
        lines.append(
            f'<rect class="plate" x="{x - 3.1 * len(text)}" y="{at - 11}" width="{6.2 * len(text)}" height="14"/>'
        )
        lines.append(
            f'<text class="action" x="{x}" y="{at}" text-anchor="middle"><title>{escape(action)}</title>{escape(text)}</text>'
        )
    return lines


def _caption(name: str, x: float, y: float) -> str:
    lines = textwrap.wrap(name, _NODE_CHARS, max_lines=_NODE_LINES, placeholder=" …")
    top = y + _NODE_HEIGHT / 2 + 4 - 7.5 * (len(lines) - 1)
    return "".join(
        f'<text x="{x + _NODE_WIDTH / 2}" y="{top + 15 * number}" text-anchor="middle">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )


def _hint(graph: Graph, vertex: Vertex) -> str:
    """What hovering over a node shows."""
    if isinstance(graph, SubGoalGraph) and isinstance(vertex, Progress):
        return f"{vertex}\nverified by: {', '.join(graph.members(vertex))}"
    return str(vertex)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
