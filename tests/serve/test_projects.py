"""Projects: one line for a repository, whatever its folders are called."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from tests.serve import browser as browsers
from tests.serve.conftest import House
from thence.cli import thence
from thence.serve.clock import DisplayClock
from thence.serve.project_names import project_label, project_root, unique_labels
from thence.serve.projects import projects


def test_a_label_is_the_shortest_end_of_a_path_that_is_unique() -> None:
    """Folders of one name are told apart."""
    labels = unique_labels(["/a/one/cli", "/a/two/cli", "/b/web", "/", "C:\\x\\api"])

    assert {
        "/a/one/cli": "one/cli",
        "/a/two/cli": "two/cli",
        "/b/web": "web",
        "/": "/",
        "C:\\x\\api": "api",
    } == labels


@pytest.mark.parametrize(
    ("folder", "root"),
    [
        ("/home/a/shop", "/home/a/shop"),
        ("/home/a/shop/", "/home/a/shop"),
        ("/home/a/shop/.claude/worktrees/fix-1", "/home/a/shop"),
        ("/home/a/shop/.worktrees/2", "/home/a/shop"),
        ("C:\\src\\shop\\.worktrees\\2", "C:\\src\\shop"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_worktrees_are_folded_into_their_repository(folder: str, root: str) -> None:
    """By their path alone: no folder that a log names is looked at."""
    assert root == project_root(folder)


def test_a_session_is_named_after_its_repository(house: House) -> None:
    """In lists as on the page of projects; without a folder it has no project."""
    for row in house.store.sessions():
        label = project_label(house.context, row.session.cwd)
        assert label == (row.session.cwd or "").rpartition("/")[2]
    assert "" == project_label(house.context, None)


def test_every_session_is_in_one_project(house: House) -> None:
    """Their numbers and costs sum up to those of the store."""
    known = projects(house.context, DisplayClock())
    total = house.store.totals()[0]

    assert total.sessions == sum(project.sessions for project in known)
    assert len(known) == len({project.label for project in known})


@pytest.mark.slow
def test_a_project_has_a_page_of_its_own(browser: Browser, house: House) -> None:
    """From the list to its sessions, costs, files and to-dos."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/projects")
        assert tab.fits()
        assert [] == tab.complaints()
        page.get_by_role("link", name="harbour-books").click()
        expect(page.locator("h1")).to_have_text("harbour-books")
        expect(page.locator(".srow").first).to_be_visible()
        for row in page.locator(".srow .name").all():
            assert "harbour-books" == row.inner_text()
        assert tab.fits()
        assert [] == tab.complaints()
        assert [] == tab.errors


def _page_sessions(house: House, path: str) -> list[str]:
    """Return the sessions that the page of a project links to, each as often as it is a row."""
    page = house.ask(f"/projects/one?path={quote(path)}", headers={"Accept": "text/html"})
    assert 200 == page.status
    titles = r'class="title"><a class="cut" dir="auto" href="([^"?#]+)'
    return re.findall(titles, page.body.decode())


def test_a_merged_folder_is_one_project_with_each_session_once(own_house: House) -> None:
    """`thence project merge`, seen in the viewer: its page has the sessions of both folders."""
    before = projects(own_house.context, DisplayClock())
    old, new = [project for project in before if project.path][:2]
    shown = [_page_sessions(own_house, project.path) for project in (old, new)]
    env = {**own_house.homes.env, "HOME": str(own_house.folder)}
    done = CliRunner().invoke(thence, ["project", "merge", old.path, new.path], env=env)
    after = projects(own_house.context, DisplayClock())
    (merged,) = (project for project in after if project.path == new.path)
    both = _page_sessions(own_house, new.path)
    gone = own_house.ask(f"/projects/one?path={quote(old.path)}", headers={"Accept": "text/html"})

    assert 0 == done.exit_code, done.output
    assert len(before) - 1 == len(after)
    assert old.sessions + new.sessions == merged.sessions
    assert sorted(shown[0] + shown[1]) == sorted(both)
    assert len(both) == len(set(both)) == merged.sessions
    assert 404 == gone.status
    assert sum(p.sessions for p in before) == sum(p.sessions for p in after)


@pytest.mark.slow
def test_no_project_is_a_page_that_says_so(house: House) -> None:
    """Whatever is asked for."""
    for path in ("/nowhere", "", "<script>"):
        answer = house.ask(f"/projects/one?path={quote(path)}", headers={"Accept": "text/html"})

        assert 404 == answer.status
