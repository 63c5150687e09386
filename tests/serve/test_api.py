"""The API: every thing that is kept can be asked for, whole, page by page, and never breaks."""

from __future__ import annotations

import re
import shutil
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pace import by_pace
from tests.serve.conftest import House, empty
from thence.cli.sample_machine import fake_token, made_id
from thence.format import layout
from thence.format.graph import State
from thence.memory.cost_totals import CostTable, with_dollars
from thence.memory.session_status import digests_now
from thence.memory.store import Filter
from thence.serve.api import PagePosition, cursor_at, cursor_text, paginate

MAIN = f"claude:{made_id('clock-change')}"


def all_of(house: House, path: str, name: str, limit: int) -> list[Any]:
    """Follow the cursors of a list to its end."""
    out: list[Any] = []
    sign = "&" if "?" in path else "?"
    cursor: str | None = ""
    while cursor is not None:
        more = f"{sign}limit={limit}" + (f"&cursor={cursor}" if cursor else "")
        answer = house.ask(path + more)
        assert 200 == answer.status, answer.body
        assert len(answer.json[name]) <= limit
        out += answer.json[name]
        cursor = answer.json.get("cursor")
    return out


# -- sessions -------------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize("sort", ["recent", "oldest", "cost", "tokens", "size"])
def test_pages_of_sessions_give_each_once_in_order(house: House, sort: Any) -> None:
    """However small the pages are."""
    wanted = [row.session.session_uid for row in house.store.sessions(Filter(order=sort))]

    for limit in (1, 4, 200):
        sessions = all_of(house, f"/api/sessions?sort={sort}", "sessions", limit)

        assert wanted == [session["session_uid"] for session in sessions]


def test_a_page_goes_on_where_the_last_one_ended_though_sessions_came_in(house: House) -> None:
    """The cursor holds the last session that was shown, not only how many there were."""
    uids = [row.session.session_uid for row in house.store.sessions()]
    late = cursor_text(PagePosition(2, uids[4]))  # three came in above since two were shown

    answer = house.ask(f"/api/sessions?limit=3&cursor={late}")

    assert uids[5:8] == [session["session_uid"] for session in answer.json["sessions"]]


def test_a_cursor_whose_session_is_gone_goes_on_by_its_number(house: House) -> None:
    """A session that was forgotten meanwhile loses nobody the rest."""
    uids = [row.session.session_uid for row in house.store.sessions()]
    lost = cursor_text(PagePosition(3, "claude:gone"))

    answer = house.ask(f"/api/sessions?limit=2&cursor={lost}")

    assert uids[3:5] == [session["session_uid"] for session in answer.json["sessions"]]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("agent=codex", Filter(agent="codex")),
        ("project=LUMEN", Filter(project="lumen")),
        ("model=opus", Filter(model="opus")),
        ("outcome=success", Filter(outcome="success")),
        ("after=2000-01-01&before=2001", Filter(before=0)),
        ("agent=", Filter()),
    ],
)
def test_filters_say_which_sessions(house: House, query: str, wanted: Filter) -> None:
    """The same ones that the store gives; `total` counts them all."""
    expected = [row.session.session_uid for row in house.store.sessions(wanted)]

    answer = house.ask(f"/api/sessions?{query}&limit=200").json

    assert expected == [session["session_uid"] for session in answer["sessions"]]
    assert len(expected) == answer["total"]


def test_words_find_the_sessions_that_hold_them(house: House) -> None:
    """And no others."""
    uids = {hit["session_uid"] for hit in house.ask("/api/search?q=fold&limit=200").json["hits"]}

    answer = house.ask("/api/sessions?q=fold&limit=200").json

    assert uids
    assert uids == {session["session_uid"] for session in answer["sessions"]}


def test_a_session_tells_its_ties_its_agents_and_its_digest(house: House) -> None:
    """By its full id and by the beginning of it."""
    complete, short = (house.ask(f"/api/sessions/{uid}").json for uid in (MAIN, MAIN[7:15]))

    assert (MAIN, complete) == (complete["session"]["session_uid"], short)
    assert [MAIN] == [agent["session_uid"] for agent in complete["agents"]]
    assert 0 < complete["agents"][0]["events"]
    assert complete["digest"]["uid"] == MAIN


def test_a_fork_names_its_origin(house: House) -> None:
    """Its tie leads to the session that it comes from."""
    forks = [row for row in house.store.sessions() if any(e.link == "fork" for e in row.edges)]

    ties = house.ask(f"/api/sessions/{forks[0].session.session_uid}").json["ties"]

    assert [("fork", MAIN, False)] == [(t["link"], t["session_uid"], t["child"]) for t in ties]


# -- what was said --------------------------------------------------------------------------


def test_the_chain_is_the_live_line_without_books(house: House) -> None:
    """No dead event, no internal one, none of a subagent."""
    events = all_of(house, f"/api/sessions/{MAIN}/chain", "events", 5)

    states = {event["state"] for event in events}

    assert states <= {"live", "orphaned", "replayed"}
    assert all(event.get("channel", "main") == "main" for event in events)
    assert len(events) == len({event["event_id"] for event in events})


def test_what_was_compacted_is_on_the_longer_chain(house: House) -> None:
    """`compacted=false` gives all live events there are."""
    live = all_of(house, f"/api/sessions/{MAIN}/events?state=live", "events", 100)

    longer = all_of(house, f"/api/sessions/{MAIN}/chain?compacted=false", "events", 100)
    chain = all_of(house, f"/api/sessions/{MAIN}/chain", "events", 100)

    assert {event["event_id"] for event in live} <= {event["event_id"] for event in longer}
    assert len(chain) < len(longer)


def test_a_branch_leads_to_its_event(house: House) -> None:
    """To a dead one as well; what led there is live."""
    dead = all_of(house, f"/api/sessions/{MAIN}/events?state=dead", "events", 100)[-1]

    events = all_of(house, f"/api/sessions/{MAIN}/branch/{dead['name']}", "events", 3)

    assert dead["event_id"] in {event["event_id"] for event in events[-2:]}
    assert {"dead", "live"} == {event["state"] for event in events}


@pytest.mark.slow
def test_every_event_of_every_session_can_be_asked_for(house: House) -> None:
    """Whatever its state; together they are all there are."""
    for row in house.store.sessions():
        uid = row.session.session_uid
        every = all_of(house, f"/api/sessions/{uid}/events", "events", 1000)
        parts = [
            all_of(house, f"/api/sessions/{uid}/events?state={state}", "events", 1000)
            for state in State
        ]

        assert (
            len(house.context.open_session(row).session.events)
            == len(every)
            == sum(map(len, parts))
        )


def test_an_event_is_found_by_each_of_its_names(house: House) -> None:
    """Its short name, its number, and the id that its log gave it."""
    event = house.ask(f"/api/sessions/{MAIN}/chain?limit=1").json["events"][0]

    names = (event["name"], str(event["event_id"]), quote(event["native_id"], safe=""))
    answers = [house.ask(f"/api/sessions/{MAIN}/events/{name}").json for name in names]

    assert [event] * 3 == answers


def test_a_raw_event_is_a_file_to_save(house: House) -> None:
    """Never a page: plain text, as an attachment, not to be guessed at."""
    event = house.ask(f"/api/sessions/{MAIN}/chain?limit=1").json["events"][0]

    answer = house.ask(f"/api/sessions/{MAIN}/events/{event['name']}/raw")

    assert "text/plain; charset=utf-8" == answer.headers["content-type"]
    assert f'attachment; filename="{event["name"]}.txt"' == answer.headers["content-disposition"]
    assert "nosniff" == answer.headers["x-content-type-options"]
    assert event["payload"] == answer.json


def test_messages_are_those_that_a_model_would_get(house: House) -> None:
    """Calls and results in pairs, as `messages` of the session itself."""
    row = house.context.row(MAIN)

    answer = house.ask(f"/api/sessions/{MAIN}/messages").json

    assert house.context.open_session(row).session.messages().messages == answer["messages"]


def test_a_subagent_is_found_by_project_and_id(house: House) -> None:
    """One on a channel of its session, and one with a session of its own."""
    row = house.context.row(MAIN)
    channel = next(
        e.channel for e in house.context.open_session(row).session.events if e.channel != "main"
    )
    below = next(r for r in house.store.sessions() if any(e.link == "subagent" for e in r.edges))
    pairs = [(row, channel.removeprefix("agent:")), (below, below.session.native_session_id)]

    for session, agent in pairs:
        project = layout.project_id(session.session.cwd or "")
        answer = house.ask(f"/api/projects/{project}/agent-sessions/{agent}")

        assert (200, session.session.session_uid) == (answer.status, answer.json["session_uid"])
        assert answer.json["total"] == len(answer.json["events"]) > 0


@pytest.mark.parametrize("agent", ["nobody", "a.b", "x" * 65])
def test_an_agent_that_is_not_there_is_not_found(house: House, agent: str) -> None:
    """Nor one whose name is none, nor one of another project."""
    project = house.ask("/api/projects").json["projects"][0]["project"]

    assert 404 == house.ask(f"/api/projects/{project}/agent-sessions/{agent}").status
    assert 404 == house.ask(f"/api/projects/elsewhere/agent-sessions/{agent}").status


# -- what is known --------------------------------------------------------------------------


def test_the_name_of_claude_s_folder_is_a_project_as_well(house: House) -> None:
    """Sessions and subagents of a project are found by the id that its own client uses."""
    folder = next(path for path in house.homes.claude.glob("projects/*") if path.is_dir())
    listed = house.ask("/api/projects").json["projects"]
    path = next(
        project["path"] for project in listed if re.sub(r"\W", "-", project["path"]) == folder.name
    )
    ours = layout.project_id(path)
    asked = [house.ask(f"/api/sessions?project={name}").json for name in (ours, folder.name)]

    assert asked[0]["total"] == asked[1]["total"] > 0


def test_hits_of_a_search_are_paged(house: House) -> None:
    """Page by page the same ones as at once."""
    at_once = house.ask("/api/search?q=tide&limit=200").json["hits"]

    assert at_once
    assert at_once == all_of(house, "/api/search?q=tide", "hits", 2)


@pytest.mark.parametrize("by", ["day", "model", "project", "agent", "session"])
def test_costs_add_up_whatever_they_are_cut_by(house: House, by: Any) -> None:
    """Live, dead and subagents' money; each part its own, the sum the same."""
    answer = house.ask(f"/api/costs?by={by}&tz=UTC").json
    bill = CostTable(house.store, by, Filter(), UTC)

    assert {**bill.object(), "tz": "UTC"} == answer
    for name in ("live_usd", "dead_usd", "subagents_usd"):
        assert sum(p[name] for p in answer["parts"]) == pytest.approx(answer["total"][name])
    assert 0 < answer["total"]["dead_usd"] < answer["total"]["usd"]


def test_projects_name_their_folders(house: House) -> None:
    """Every folder that a session was in, with all of its sessions."""
    projects = house.ask("/api/projects").json["projects"]

    counts = {project["path"]: project["sessions"] for project in projects}
    rows = [row.session.cwd for row in house.store.sessions() if row.session.cwd]

    assert {path: rows.count(path) for path in set(rows)} == counts
    assert [layout.project_id(project["path"]) for project in projects] == [
        project["project"] for project in projects
    ]


def test_digests_signals_and_patterns_are_those_of_the_store(house: House) -> None:
    """All of them, page by page; of one session, its own."""
    signals = list(house.store.read_table("signals"))
    digests = all_of(house, "/api/digests", "digests", 3)
    stored = digests_now(
        house.store, house.store.read_table("digests"), house.context.now(), house.context.labels()
    )

    assert list(map(with_dollars, stored)) == digests
    assert signals == all_of(house, "/api/signals", "signals", 2)
    assert [s for s in signals if s["uid"] == MAIN] == all_of(
        house, f"/api/signals?session={MAIN}", "signals", 10
    )
    assert len(digests) == house.ask("/api/patterns").json["sessions"]
    assert digests[0] == house.ask(f"/api/sessions/{digests[0]['uid']}/digest").json


def test_the_plan_and_the_store_tell_the_same_bytes(house: House) -> None:
    """What is used, against the caps."""
    plan, store = house.ask("/api/plan").json, house.ask("/api/store").json

    assert plan["usage_before"] == store["raw_bytes"] > 0
    assert store["sessions"] == len(list(house.store.sessions()))
    assert house.context.policy.raw_soft_cap_bytes == store["policy"]["raw_soft_cap_bytes"]


def test_now_tells_what_goes_on(house: House) -> None:
    """Sessions that run or wait, what is at risk, what was spent."""
    answer = house.ask("/api/now").json

    shown = {
        session["session_uid"]: how for how in ("waiting", "running") for session in answer[how]
    }
    for uid, how in shown.items():
        assert how == house.context.now().of(house.context.row(uid), house.context.clock())
    assert answer["today"]["usd"] <= answer["week"]["usd"]


# -- odd questions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/sessions/nobody", 404),
        ("/api/sessions/claude:", 404),
        ("/api/sessions/%7Bodd%7D", 404),
        (f"/api/sessions/{MAIN}/events/e", 404),
        (f"/api/sessions/{MAIN}/events/zzz", 404),
        ("/api/sessions?limit=0", 400),
        ("/api/sessions?limit=999", 400),
        ("/api/sessions?cursor=%00%ff", 400),
        ("/api/sessions?sort=best", 400),
        ("/api/sessions?after=never", 400),
        ("/api/search", 400),
        ("/api/search?q=cost%3Eall", 400),
        ("/api/costs?by=mood", 400),
        ("/api", 404),
        ("/api/nothing", 404),
    ],
)
def test_an_odd_question_gets_a_problem_with_a_hint(house: House, path: str, status: int) -> None:
    """As problem+json, with its status, and something to do."""
    answer = house.ask(path)

    assert (status, "application/problem+json") == (answer.status, answer.headers["content-type"])
    assert (status, True) == (answer.json["status"], bool(answer.json["title"]))
    assert answer.json["hint"]


@given(st.text(max_size=40))
def test_no_text_is_a_cursor_that_breaks(text: str) -> None:
    """It is read back, or refused as one that no page gave."""
    from thence.serve.api import BadCursor

    try:
        at = cursor_at(text)
    except BadCursor:
        return

    assert 0 <= at.offset


@given(st.lists(st.integers()), st.integers(1, 7))
def test_pages_hold_everything_once(items: list[int], limit: int) -> None:
    """Cut into pages and put together again it is the same."""
    out: list[int] = []
    cursor: str | None = cursor_text(PagePosition(0))
    while cursor is not None:
        page, cursor = paginate(items, cursor, limit)
        out += page

    assert items == out


# -- hostile logs ---------------------------------------------------------------------------

ROUTES = (
    *("", "/chain?limit=1000", "/chain?compacted=false", "/events?limit=1000", "/messages"),
    *("/digest", "/events?state=dead"),
)


def hostile_house(corpus: Path, folder: Path, smaller: int) -> House:
    """A machine whose logs are the hostile corpus, kept."""
    house = empty(folder)
    project = house.homes.claude / "projects" / "-home-dev-p"
    project.mkdir(parents=True)
    for path in sorted((corpus / "files").glob("*.jsonl")):
        if path.stat().st_size <= smaller:
            shutil.copyfile(path, project / f"{uuid5(NAMESPACE_URL, path.name)}.jsonl")
    house.swept()
    return house


def broken(house: House) -> list[str]:
    """Ask everything of every session; what broke the server."""
    uids = [row.session.session_uid for row in house.store.sessions()]
    uids = uids[:: by_pace(everyday=16, full=16, prove=1)]
    paths = [f"/api/sessions/{uid}{route}" for uid in uids for route in ROUTES]
    paths += ["/api/now", "/api/costs?by=session", "/api/patterns", "/api/store", "/api/digests"]
    return [path for path in paths if house.ask(path).status >= 500]


@pytest.mark.slow
@pytest.mark.sampled
def test_no_log_however_hostile_breaks_the_api(corpus: Path, tmp_path: Path) -> None:
    """Kept, and evicted so that it is read from its source."""
    house = hostile_house(corpus, tmp_path, 600_000)
    with house.serving():
        stored = broken(house)
        rows = [row.session.session_uid for row in house.store.sessions()]
        house.store.remove(rows, why={}, lost=True)
        evicted = broken(house)
    house.close()

    assert 40 < len(rows)
    assert ([], []) == (stored, evicted)


@pytest.mark.slow
def test_what_is_read_from_a_source_is_redacted(own_house: House) -> None:
    """An evicted session is answered from its file, and its secrets are not."""
    secret = next(
        row.session.session_uid
        for row in own_house.store.sessions()
        if fake_token() in Path(row.session.source_path or "").read_text(encoding="utf-8")
    )
    own_house.store.remove([secret], why={})

    answer = own_house.ask(f"/api/sessions/{secret}/events?limit=1000")

    assert (200, False) == (answer.status, fake_token().encode() in answer.body)
    assert answer.json["total"]


# -- OpenAPI --------------------------------------------------------------------------------


def tried(house: House, examples: int, method: str = "get") -> dict[str, set[int]]:
    """Ask everything that the OpenAPI allows, and much that it does not."""
    import schemathesis

    token = {"Authorization": f"Bearer {house.gate.token}"}
    url = f"http://127.0.0.1:{house.port}/api/openapi.json"
    schema = schemathesis.openapi.from_url(url, headers=token)
    uids = [row.session.session_uid for row in house.store.sessions()]
    event = house.ask(f"/api/sessions/{uids[0]}/events?limit=1").json["events"][0]["name"]
    seen: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()  # else the schema is none, and it raises
        if operation.method == method:
            seen[operation.label] = asked(operation, token, uids, event, examples)
    return seen


def asked(
    operation: Any, token: dict[str, str], uids: list[str], event: str, examples: int
) -> set[int]:
    """Ask one thing in many ways, of sessions that there are and of others."""
    statuses: set[int] = set()

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), uid=st.sampled_from([None, *uids]))
    def ask(case: Any, uid: str | None) -> None:
        if uid is not None and "uid" in case.path_parameters:
            case.path_parameters["uid"] = uid
            if "event" in case.path_parameters:
                case.path_parameters["event"] = event
        answer = case.call(headers=token)
        statuses.add(answer.status_code)

        assert answer.status_code < 500, case.as_curl_command()

    ask()

    return statuses


@pytest.mark.slow
@pytest.mark.sampled
def test_nothing_that_is_asked_breaks_the_server(house: House) -> None:
    """Made-up requests to every operation of our OpenAPI: no 500."""
    seen = tried(house, by_pace(everyday=2, full=2, prove=15))

    assert 15 < len(seen)
    assert 200 in set.union(*seen.values())


@pytest.mark.prove
def test_nothing_that_is_asked_often_breaks_the_server(house: House) -> None:
    """The same, many times over."""
    assert 15 < len(tried(house, 300))


def test_a_search_says_how_it_was_found(house: House) -> None:
    """A word may be a beginning; an unknown filter is said."""
    typed = house.ask("/api/search?q=tid*").json
    sentence = house.ask("/api/search?q=where%20is%20the%20tide%20saffron").json
    odd = house.ask("/api/search?q=tide%20projct:x").json

    assert ("all", True) == (typed["how"], bool(typed["hits"]))
    assert ("any", "no exact match; best matches for: tide") == (
        sentence["how"],
        sentence["explanation"],
    )
    assert ["projct: is not a filter, so it was searched as text; did you mean project:?"] == odd[
        "hints"
    ]


def test_a_question_is_answered_by_sessions(house: House) -> None:
    """Each with what was asked, changed and how it ended."""
    page = house.ask("/api/ask?q=how%20did%20we%20mend%20the%20tide").json

    assert 1 <= len(page["sessions"]) <= 3
    assert {"asked", "decided", "files", "failed", "ended"} <= set(page["sessions"][0])
