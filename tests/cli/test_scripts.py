"""Chinese, Japanese and Korean: any characters inside a sentence are found, in both stores."""

# ruff: noqa: RUF001 - full-width signs are what is tested

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import Desk
from tests.postgres import Cluster
from thence.memory import derivation, index

CHINESE = "f1000000-0000-4000-8000-000000000001"
JAPANESE = "f1000000-0000-4000-8000-000000000002"
KOREAN = "f1000000-0000-4000-8000-000000000003"

TEXTS = {
    CHINESE: "请帮我修复login错误，用户无法登录系统。日志在data目录里。",
    JAPANESE: "データベースの接続が切れる問題を直してください。ｻｰﾊﾞｰの設定はＡＰＩ経由です。",
    KOREAN: "로그인 오류를 수정해 주세요. 데이터베이스가 느립니다.",
}

ASKED = {
    # word: the sessions that say it
    "登录": {CHINESE},
    "修复": {CHINESE},
    "无法登录系统": {CHINESE},
    "错误": {CHINESE},
    "login": {CHINESE},
    "修复login": {CHINESE},
    "复login错": {CHINESE},
    "data目录": {CHINESE},
    "统": {CHINESE},
    "户": {CHINESE},
    "登系": set(),
    '"用户 登录"': set(),
    '"登录系统 日志"': {CHINESE},
    "接続": {JAPANESE},
    "ベース": {JAPANESE},
    "問題を直": {JAPANESE},
    "サーバー": {JAPANESE},
    "ｻｰﾊﾞｰ": {JAPANESE},
    "API経由": {JAPANESE},
    "ください": {JAPANESE},
    "오류": {KOREAN},
    "로그인": {KOREAN},
    "데이터": {KOREAN},
    "그인 수정": {KOREAN},
    '"오류를 수정해"': {KOREAN},
    "登录 OR 接続": {CHINESE, JAPANESE},
    "登录 -系统": set(),
    "接続 -登录": {JAPANESE},
    "登录*": {CHINESE},
    "登録": set(),
}


def write_sessions(desk: Desk) -> None:
    """Write a session for each language, and one that has only Latin letters."""
    scripts = [Script(name, name[-4:], cwd="/home/dev/tidepool") for name in TEXTS]
    for script, text in zip(scripts, TEXTS.values(), strict=True):
        script.user(text)
        script.reply([{"type": "text", "text": "done"}], stop="end_turn")
    plain = Script("f1000000-0000-4000-8000-000000000004", "f104", cwd="/home/dev/tidepool")
    plain.user("a plain prompt, café")
    desk.write_claude(*scripts, plain)


def sessions(desk: Desk, query: str) -> set[str]:
    """Return the sessions that a search finds."""
    hits = desk.run("search", "--json", "--", query).json["hits"]
    return {hit["session_uid"].partition(":")[2] for hit in hits}


def answers(desk: Desk) -> dict[str, set[str]]:
    """Return what each search finds."""
    return {query: sessions(desk, query) for query in ASKED}


@pytest.mark.slow
def test_characters_inside_a_sentence_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two or more of them, one too; mixed with other scripts, in phrases, left out, full-width."""
    desk = Desk(tmp_path, monkeypatch)
    write_sessions(desk)
    desk.sweep()

    assert answers(desk) == ASKED


def test_both_stores_find_the_same_characters(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres answers as SQLite does."""
    desk = Desk(tmp_path, monkeypatch)
    write_sessions(desk)
    monkeypatch.setenv("THENCE_STORE", postgres.url(tenant=f"scripts {tmp_path}", machine="here"))
    desk.sweep()

    assert answers(desk) == ASKED


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("登录系统", "用户无法[登录系统]。"),
        ("复login错", "请帮我修[复login错]误，"),
        ("login", "修复[login]错误"),
        ("サーバー", "ください。[ｻｰﾊﾞｰ]の設定"),
        ("API経由", "設定は[ＡＰＩ経由]です"),
        ("그인", "로[그인] 오류를"),
    ],
)
def test_a_snippet_shows_the_original_text(
    query: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for is marked in it, in the form it was written."""
    desk = Desk(tmp_path, monkeypatch)
    write_sessions(desk)
    desk.sweep()

    assert shown in desk.run("search", query, columns=200).out


def test_a_note_is_found_by_characters_inside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions are searched in the same way as sessions."""
    desk = Desk(tmp_path, monkeypatch)
    write_sessions(desk)
    desk.sweep()
    desk.run("decide", "我们决定使用缓存登记表")

    assert "缓存[登记]表" in desk.run("search", "登记", columns=200).out
    assert desk.run("search", "登表").out.startswith("no matches")


@pytest.mark.slow
@pytest.mark.parametrize("is_gone", [False, True])
def test_an_older_store_is_indexed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_gone: bool
) -> None:
    """The next sweep does it, also for sessions whose transcript was deleted."""
    desk = Desk(tmp_path, monkeypatch)
    write_sessions(desk)
    with monkeypatch.context() as older:
        older.setattr(derivation, "READER_VERSION", derivation.READER_VERSION - 1)
        older.setattr(index, "index_text", lambda text: text)
        desk.sweep()
    before = sessions(desk, "登录")
    if is_gone:
        for path in desk.claude.rglob(f"{CHINESE}.jsonl"):
            path.unlink()
        desk.sweep()
    desk.sweep()

    assert set() == before
    assert answers(desk) == ASKED
