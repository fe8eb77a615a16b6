"""The Sokoban adapter and its push graph, on real levels."""

from __future__ import annotations

import pytest
from credit_builders import batch, chain, step

from keel.credit.adapters.sokoban import SokobanAdapter
from keel.credit.attribution import judge
from keel.credit.progress import Episode
from keel.credit.purify import purify
from keel.credit.pushes import PushGraph, box_moves, parts, walking_distance
from keel.credit.seed import play
from keel.credit.states import SUCCESS
from keel.envs.sokoban import SokobanSettings, load
from keel.envs.sokoban.room import MOVES, advance
from keel.errors import DataError

ROOM = b"#######\n#@    #\n# $ . #\n#     #\n#######"
"""The box must go two to the right; the player has to walk round to its left."""


def rooms(start: bytes, moves: str) -> list:
    """Steps of a move text such as "d r r"."""
    names = {"u": "up", "d": "down", "l": "left", "r": "right"}
    steps, here = [], start
    for letter in moves.split():
        move = advance(here, names[letter])
        steps.append(step(here, names[letter], move.state, move.moved))
        here = move.state
    return steps


SOLUTION = "d r r"


def known() -> PushGraph:
    return PushGraph().union(purify(rooms(ROOM, SOLUTION)))[0]


def judged(moves: str) -> tuple[str, str]:
    rea, pa = judge(rooms(ROOM, moves), known(), redundant_is_reasonable=True, exploration_is_reasonable=False)
    return "".join("01"[x] for x in rea), "".join("01"[x] for x in pa)


def test_the_verified_way() -> None:
    assert judged(SOLUTION) == ("111", "111")


def test_only_pushes_are_stored() -> None:
    edges = [(edge.action, count) for edge, count in known().edges()]
    assert edges == [("17:right", 1), ("18:right", 1)]
    assert known().columns() == ("2 pushes to go", "1 push to go", "success")


def test_a_push_of_an_invalid_turn_is_no_edge_and_the_others_are() -> None:
    """The first push was carried out although its response was malformed."""
    trace = rooms(ROOM, SOLUTION)
    trace[1] = trace[1]._replace(valid=False)
    graph = PushGraph().union(purify(trace))[0]
    assert [(edge.action, count) for edge, count in graph.edges()] == [("18:right", 1)]


def test_an_invalid_push_back_still_closes_a_loop() -> None:
    """Pushed right, pushed back by an invalid turn, pushed right again: the first push leaves no edge of its own."""
    room = b"########\n#@     #\n# $  . #\n#      #\n########"
    trace = rooms(room, "d r u r r d l u l l d r r r")
    assert [s.action for s in box_moves(trace)] == ["19:right", "22:left", "19:right", "20:right", "21:right"]
    back = next(i for i, s in enumerate(trace) if box_moves([s]) and s.action == "left")
    trace[back] = trace[back]._replace(valid=False)
    graph = PushGraph().union(purify(trace))[0]
    assert [(edge.action, count) for edge, count in graph.edges()] == [
        ("19:right", 1),
        ("20:right", 1),
        ("21:right", 1),
    ]


def test_another_shortest_walk_is_reasonable_and_a_detour_is_not() -> None:
    assert judged("r l d r r") == ("01111", "00111")


def test_walking_into_a_wall_is_nothing() -> None:
    assert judged("u d r r") == ("0111", "0111")


def test_an_unverified_push_is_unreasonable() -> None:
    # Round to the right of the box, and it goes left, against the wall. The fifth move comes nearer to where the push starts, but not
    # nearer than the player already was.
    assert judged("r r r d l l") == ("000010", "000000")


def test_after_an_unverified_push_nothing_is_known() -> None:
    assert judged("r d d") == ("000", "000")


def test_pushing_forth_and_back_leaves_no_edge() -> None:
    detour = "d r u r r d l u l l d r r"
    steps = rooms(ROOM, detour)
    assert steps[-1].target.count(b"$") == 0
    graph = PushGraph().union(purify(steps))[0]
    assert {edge for edge, _ in graph.edges()} == {edge for edge, _ in known().edges()}


def test_a_push_undone_from_the_other_side_leaves_no_edge() -> None:
    # Down, back up, then right: the player never stands twice in the same room, only the box does.
    room = b"#######\n#  @  #\n#     #\n#  $ .#\n#     #\n#     #\n#######"
    steps = rooms(room, "d d r d d l u l u r r")
    assert steps[-1].target.count(b"$") == 0
    graph = PushGraph().union(purify(steps))[0]
    assert [edge.action.partition(":")[2] for edge, _ in graph.edges()] == ["right", "right"]


def test_a_room_without_its_player() -> None:
    assert parts(ROOM).boxes == ROOM.decode().replace("@", " ")
    assert parts(b"####\n#+*#\n####") == (SUCCESS, 6)
    with pytest.raises(DataError, match="without a player"):
        parts(b"####")


def test_walks_go_round_boxes() -> None:
    distance = walking_distance(parts(ROOM).boxes, 17 + 2)
    assert 18 not in distance
    assert distance[17] == 4


def test_two_orders_of_two_boxes_once_both_are_verified() -> None:
    room = b"########\n#      #\n#@$.   #\n#@$.   #\n########".replace(b"@", b" ")
    room = room[:10] + b"@" + room[11:]
    first, second = "d r l d r", "d d r l u r"
    assert all(steps[-1].target.count(b"$") == 0 for steps in (rooms(room, first), rooms(room, second)))
    graph = PushGraph().union(purify(rooms(room, first)))[0].union(purify(rooms(room, second)))[0]
    for moves in (first, second):
        rea, _ = judge(rooms(room, moves), graph, redundant_is_reasonable=True, exploration_is_reasonable=False)
        assert rea[-1] and rea[0]


def test_other_states_are_refused() -> None:
    episode = Episode("t", False, ["text"], ["text"], ["up"], [True])
    with pytest.raises(DataError, match="a Sokoban room is bytes"):
        SokobanAdapter().trace(episode)
    assert not PushGraph().has_edge(chain("a", "up", "b")[0])
    assert not PushGraph().has_vertex("a")


def test_every_demonstration_of_real_levels_is_wholly_reasonable() -> None:
    environment = load(SokobanSettings())
    for seed in range(20):
        task = environment.sample_task("train", seed)
        episode = play(environment, task, [turn.action for turn in environment.demonstrate(task, 0)])
        assert episode is not None and episode.success
        steps = SokobanAdapter().trace(episode)
        graph, growth = PushGraph().union(purify(steps))
        assert growth.refused_edges == 0
        rea, pa = judge(steps, graph, redundant_is_reasonable=True, exploration_is_reasonable=False)
        assert all(rea) and all(pa)
        assert set(episode.actions) <= set(MOVES)


def test_batches_are_read_by_trajectory() -> None:
    turns = [(s.source, s.action, s.target, s.valid) for s in rooms(ROOM, SOLUTION)]
    index = batch(("t", True, turns), ("t", False, turns[:1]))
    assert index.num_turns == 4
