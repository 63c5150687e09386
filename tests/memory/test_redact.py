"""Redaction: what is replaced, what is left alone, and what it costs the text around it."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pickle
import random
import re
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.secrets import FILLERS, sample
from thence.errors import BadConfig
from thence.memory.redact import RULES, Redactor, rules_version
from thence.memory.rules import Rule, rule_of

KEY = b"a key for tests"
PLACEHOLDER = re.compile(r"\[REDACTED:([a-z0-9-]+)(?::([0-9a-f]{8}))?\]")
PASSWORD = "x7!" + "rain-barrel"


COMPILED = Redactor(key=KEY)
"""Shared where counts do not matter: its rules are compiled once."""


def redact(text: str) -> str:
    """Redact one text."""
    return COMPILED.redact(text)


def token(seed: int = 0) -> str:
    """Make up a token that is found wherever it stands."""
    return sample("ghp" + "_{A36}", seed)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_finds_its_example(rule: Rule) -> None:
    """Whatever the blanks of its example are filled with."""
    texts = [redact(sample(rule.example, seed)) for seed in range(4)]

    assert [True] * 4 == [f"[REDACTED:{rule.name}" in text for text in texts]
    assert texts == [redact(text) for text in texts]


NEAR = [rule for rule in RULES if rule.near]
SECRET_NAMES = st.sampled_from(
    [
        "api_key",
        "TOKEN",
        "refresh-token",
        "client.secret",
        "x_auth",
        "my_pat",
        "credentials",
        "--key",
    ]
)
SIGNS = st.text("\\\"'`]) \t\n=:>([,", max_size=16)
LETTERS = st.text(string.ascii_letters + string.digits + "_.~+/=-", min_size=12, max_size=40)


@pytest.mark.parametrize("rule", NEAR, ids=lambda rule: rule.name)
def test_what_is_near_an_example_is_so_in_json(rule: Rule) -> None:
    """Escaped once, twice and three times over."""
    text: Any = f"before\n{sample(rule.example)}\tafter"
    for _ in range(4):
        assert rule in [RULES[at] for at in COMPILED.doubts(text.encode())]
        text = json.dumps(text)


@given(
    SECRET_NAMES,
    st.text("-_.ab", max_size=4),
    SIGNS,
    st.sampled_from(["", ": str = ", "=>"]),
    LETTERS,
)
def test_what_a_pattern_finds_has_near_what_is_looked_for(
    name: str, tail: str, signs: str, sign: str, value: str
) -> None:
    """In the text itself and in all JSON of it: no secret is lost to the quick look."""
    finder = COMPILED._finder
    text = f"so {name}{tail}{sign}{signs}{value} on"
    once = msgspec.json.encode({"text": text})
    twice = msgspec.json.encode([once.decode()])
    rules = {span.rule for span in finder.spans(text.encode(), finder.all)}
    for data in (text.encode(), once, twice):
        assert set() == rules - set(finder.suspects(data))


@given(SECRET_NAMES, st.lists(LETTERS, max_size=3))
def test_what_has_a_name_in_json_is_looked_at(name: str, values: list[str]) -> None:
    """Whether the name stands before it, before a list it is in, or beside it."""
    for value in (
        *({name: value_text} for value_text in values),
        {name: values},
        {name: [[1, *values]]},
        *({"name": name, "value": value_text} for value_text in values),
        {"value": values, "key": name},
    ):
        if COMPILED.redact_json(value) != value:
            assert COMPILED.doubts(msgspec.json.encode(value))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_rule_takes_a_near_miss(rule: Rule) -> None:
    """What only looks like a secret stays."""
    text = sample(rule.near_miss)

    assert text == redact(text)


def test_the_table_is_in_order() -> None:
    """Kinds are named once; keywords are in lower case and found; there are many."""
    words = sorted({word for rule in RULES for word in rule.keywords})
    redactor = Redactor(key=KEY)
    suspects = redactor._finder.rules_for_name(" ".join(words).upper().encode())

    assert 60 <= len(RULES) == len({rule.name for rule in RULES})
    assert [word.lower() for word in words] == words
    assert list(range(len(RULES))) == suspects


def _variants(rule: Rule) -> Iterator[Rule]:
    """Yield a rule with each field changed that decides what it finds."""
    for field in dataclasses.fields(rule):
        if field.name in {"example", "near_miss"}:
            continue
        value = getattr(rule, field.name)
        other: Any = f"{value}x"
        if isinstance(value, bool):
            other = not value
        elif isinstance(value, float):
            other = value + 0.5
        elif isinstance(value, tuple):
            other = (*value, "x")
        yield dataclasses.replace(rule, **{field.name: other})


@pytest.mark.slow
def test_any_change_of_any_rule_is_another_version() -> None:
    """Nobody raises a number: the text, the options and the order of all rules are the version."""
    versions = [
        rules_version((*RULES[:at], changed, *RULES[at + 1 :]))
        for at, rule in enumerate(RULES)
        for changed in _variants(rule)
    ]
    more = rule_of("ticket", "ACME-[0-9]{6}")
    versions += [rules_version(RULES[1:]), rules_version((RULES[1], RULES[0], *RULES[2:]))]
    versions += [rules_version((*RULES, more)), rules_version(RULES)]

    assert len(versions) == len(set(versions))
    assert all(0 <= version < 1 << 63 for version in versions)
    assert rules_version((*RULES, more)) == Redactor(key=KEY, extra=[more]).version


def test_examples_are_no_part_of_the_version() -> None:
    """They are data of the tests: stored sessions stay as they are when one is added."""
    first = dataclasses.replace(RULES[0], example="another", near_miss="none")

    assert rules_version(RULES) == rules_version((first, *RULES[1:]))


def test_every_process_computes_the_same_version_and_compiles_nothing() -> None:
    """Otherwise every sweep would process all sessions again, or would take longer."""
    code = (
        "import sys; from thence.memory.redact import RULES, rules_version;"
        "print(rules_version(RULES), 're2' in sys.modules)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert {f"{rules_version(RULES)} False\n"} == outputs


def test_the_table_holds_no_secret() -> None:
    """Templates are not what they are filled to, so that nobody takes them for a leak."""
    texts = [text for rule in RULES for text in (rule.example, rule.near_miss)]
    formats = tuple(rule for rule in RULES if rule.hashed and not rule.strict)

    assert texts == Redactor(formats, key=KEY).redact_all(texts)


def test_a_sample_follows_from_its_seed() -> None:
    """The same seed gives the same text, another seed another."""
    assert sample("a{h8}-{d4}", 1) == sample("a{h8}-{d4}", 1) != sample("a{h8}-{d4}", 2)
    assert re.fullmatch("a[0-9a-f]{8}-[0-9]{4}", sample("a{h8}-{d4}", 1))
    assert set(FILLERS) == set(
        re.findall(r"\{([A-Za-z])1\}", "".join(f"{{{f}1}}" for f in FILLERS))
    )


NOT_SECRET = {
    "commit": "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "token that is an id": "token: 123e4567-e89b-12d3-a456-426614174000",
    "integrity": '"integrity": "sha512-' + "Zk9" * 28 + 'Aa==",',
    "lock file": "--hash=sha256:5c7b8ee0a0d0c2dd4f12d3b3f3d0c3f5a4e2b1c0d9e8f7a6b5c4d3e2f1a0b9c8",
    "image": '"data": "iVBORw0KGgoAAAANSUhEUgAA' + "QmFzZTY0" * 40 + '"',
    "dots": "export OPENAI_API_KEY=sk-...",
    "run of x": "GITHUB_TOKEN=ghp_" + "x" * 36,
    "alphabet": "token = 'ghp_" + string.ascii_lowercase + "0123456789'",
    "angle brackets": "Authorization: Bearer <your-token-here-please>",
    "variable": "curl -H 'Authorization: Bearer ${TOKEN}' -u user:$PASSWORD https://h.internal",
    "advice": "api_key: your-api-key-1234567890",
    "code": "token = self.session.get_token_v2(user_id, refresh_token=old)",
    "type": "password: str = Field(min_length=8)",
    "call": "password = getpass.getpass('Password: ')",
    "label": '<input type="password" placeholder="Password" name="password">',
    "usage": '{"input_tokens": 123456789, "output_tokens": 42, "max_tokens": 200000}',
    "model": '"api_key_name": "claude-sonnet-4-5-20250929"',
    "env without secrets": "PWD=/home/user/project\nOLDPWD=/home/user\nSHLVL=1",
    "certificate": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "public key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB" + "k3Y" * 14 + " me@host",
    "session": "session_id=01997ea4-a70d-7da3-8c20-c736db82a7c5",
    "database": "postgres://postgres:postgres@localhost:5432/test",
    "documentation": "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
    "tool call": '{"tool_use_id": "toolu_01A09q90qw90lq917835lq9", "type": "tool_result"}',
    "address": "https://github.com/org/repo@v1.2.3 and git@github.com:org/repo.git",
    "path": "secret_path=/etc/app/v2/keys/9f8e7d6c/a1b2c3.pem",
    "colour": "--pass: #34d399;\n--fail: #f87171;",
    "colour in a row": ":root{--color-pass: #34d399; --badge-pass: #22c55e}",
    "colour in YAML": "pass: #34d399",
    "key that is public": '"public_key": "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLD="',
    "key that is public, in the environment": "SIGNING_PUBLIC_KEY=MCowBQYDK2VwAyEAGb9ECWmEzf6FQbr",
    "key that is public, in PEM": "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0\n-----END",
    "format, percent": '"password=%s&user=%s" % (p, u)',
    "format, named": "password=%(password)s",
    "format, braces": 'dsn = "Server={0};Password={1};"',
    "format, f-string": 'f"password={password!r}"',
    "format, address": '"postgresql://%s:%s@%s/%s"',
    "sentence": "the password is wrong, and a passphrase is required",
    "sentence with digits": "the password is 8-20 characters long and is SHA-256 hashed",
    "sentence about a seed": "a random seed is used for the test and that is all there is to it",
    "place in a file": "tests/a.py:1024:20:foo:bar",
    "counts": "tests:\n  pass: 12\n  fail: 0\n",
    "label in quotes": '{"password": "Passwort", "forgotPassword": "Reset it"}',
    "field in quotes": 'password_field = "user_password"',
    "setx": 'setx EDITOR "notepad"',
    "template": "<password>${env.CI_PASS}</password>",
}


_WEB_TOKEN = sample("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ{s60}.{s43}", 3)
_WORDS = "legal winner thank year wave sausage worth useful legal winner thank yellow"


def _wrapped(text: str, width: int) -> str:
    return "\n".join(text[at : at + width] for at in range(0, len(text), width))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SECRETS: dict[str, tuple[str, list[str]]] = {
    "pgpass": ("db.internal:5432:app:deploy:tr0ub4dor&3\n", ["tr0ub4dor&3"]),
    "pgpass, any host": ("*:*:*:postgres:kitchen-Sink99", ["kitchen-Sink99"]),
    "web token at 20": (
        f"token\n{_wrapped(_WEB_TOKEN, 20)}\n",
        [_WEB_TOKEN[:20], _WEB_TOKEN[40:60]],
    ),
    "web token at 40": (f"$ show\n{_wrapped(_WEB_TOKEN, 40)}\n$ next", [_WEB_TOKEN[40:80]]),
    "setx": ('setx API_PIN "Zu8-kk2-Harbour"', ["Zu8-kk2-Harbour"]),
    "setx, with blanks": ('setx DB_PASSWORD "correct horse battery" /M', ["correct horse"]),
    "base64": (
        f"echo {_encoded('DB_PASSWORD=hunter42x!')} | base64 -d",
        [_encoded("DB_PASSWORD=")],
    ),
    "base64, shifted": (
        "d: " + _encoded("A=11\nX_API_KEY=kJ8sd7fKJ3hs"),
        [_encoded("A=11\nX_API_K")],
    ),
    "YAML": ("db:\n  user: app\n  pass: s3#cr&t!x\n", ["s3#cr&t!x"]),
    "YAML in quotes": ("pass: 'p@ss;w0rd$%'\n", ["p@ss;w0rd$%"]),
    "YAML with brackets": ("  password: q$7(zz)[k]\n", ["q$7(zz)[k]"]),
    "YAML in JSON": (json.dumps("db:\n  pass: s3#cr&t!x\n"), ["s3#cr&t!x"]),
    "letters in quotes": ('password = "correcthorsebattery"', ["correcthorsebattery"]),
    "letters in JSON": ('{"db_password": "sunflowerfield"}', ["sunflowerfield"]),
    "sentence": ("the admin password is Marmalade7 for now", ["Marmalade7"]),
    "sentence, of something": (
        "The password for the router is: walrus-moon-17.",
        ["walrus-moon-17"],
    ),
    "wallet": (f"seed phrase: {_WORDS}", ["sausage worth"]),
    "wallet, 24 words": (f'mnemonic = "{_WORDS} {_WORDS}"', ["sausage worth", "winner thank"]),
    "Maven": ("<id>x</id><password>Kayak-17-lamp</password>", ["Kayak-17-lamp"]),
    "escaped name": ('{"\\u0070assword": "Kayak-17-lamp"}', ["Kayak-17-lamp"]),
    "escaped sign": ('"api\\u005fkey":"kJ8sd7fKJ3hs9dfk2lsd8"', ["kJ8sd7fKJ3hs9dfk2lsd8"]),
    "colour inside": (f"{token(5)[:9]}\x1b[0m\x1b[31m{token(5)[9:]}", [token(5)[:9], token(5)[9:]]),
    "colour around": (f"PASSWORD=\x1b[1m{PASSWORD}\x1b[0m", [PASSWORD]),
    "colour in JSON": (json.dumps(f"{token(6)[:14]}\x1b[0m{token(6)[14:]}"), [token(6)[14:]]),
}


@pytest.mark.parametrize("what", SECRETS)
def test_secrets_in_odd_forms_are_found(what: str) -> None:
    """In the text, in JSON of it, and as a text of a JSON value."""
    text, pieces = SECRETS[what]
    forms = (redact(text), redact(json.dumps(text)), str(COMPILED.redact_json({"a": [text]})))

    assert [] == [piece for piece in pieces for form in forms if piece in form]
    assert forms[0] == redact(forms[0])


@pytest.mark.parametrize("what", NOT_SECRET)
def test_what_is_no_secret_stays(what: str) -> None:
    """Ids, hashes, images, code and placeholders of documentation are no secrets."""
    assert NOT_SECRET[what] == redact(NOT_SECRET[what])


def test_placeholders_tell_equal_from_different_secrets() -> None:
    """The mark is the same for the same secret under the same key, and for nothing else."""
    texts = [f"a {token()}", f"b='{token()}'", token(1)]
    first, again, other = (PLACEHOLDER.findall(redact(text))[0] for text in texts)
    foreign = PLACEHOLDER.findall(Redactor(key=b"another key").redact(token()))[0]

    assert first == again
    assert 3 == len({first, other, foreign})
    assert ("github-token", 8) == (first[0], len(first[1]))


def test_the_mark_is_the_same_however_a_secret_is_written() -> None:
    """A key block in a file and in JSON is one key."""
    key = sample("-----BEGIN PRIVATE " + "KEY-----\n{b64}\n{b30}=\n-----END PRIVATE KEY-----")
    plain, escaped = redact(f"{key}\n"), redact(json.dumps({"k": key}))

    assert PLACEHOLDER.findall(plain) == PLACEHOLDER.findall(escaped) != []


def test_what_can_be_guessed_has_no_mark() -> None:
    """A hash of a password would be a way to the password."""
    assert "export DB_PASSWORD='[REDACTED:password]'" == redact(f"export DB_PASSWORD='{PASSWORD}'")
    assert "mysql://app:[REDACTED:url-password]@db/x" == redact(f"mysql://app:{PASSWORD}@db/x")


def test_a_password_of_letters_is_found_in_the_environment() -> None:
    """Elsewhere it would be a word: a label, a type, the name of a function."""
    assert "DB_PASSWORD=[REDACTED:password]\n" == redact("DB_PASSWORD=correcthorse\n")
    assert "password=correcthorse" == redact("password=correcthorse")


def test_only_the_secret_is_replaced() -> None:
    """What stands around it stays, to the byte."""
    before, after = "héad\0\ud800\r\n\t$ export GITHUB=", " # näxt\udfff\n\0"
    redacted = redact(before + token() + after)

    assert redacted.startswith(before + "[REDACTED:github-token:")
    assert redacted.endswith("]" + after)


def test_a_specific_kind_wins_over_a_general_one() -> None:
    """The header and the name would find it too."""
    text = redact(f'Authorization: Bearer {token()}\napi_key = "{token(1)}"')

    assert ["github-token", "github-token"] == [kind for kind, _ in PLACEHOLDER.findall(text)]


def test_of_overlapping_secrets_the_longest_counts_and_all_go() -> None:
    """No part of the shorter one stays."""
    rules = (
        rule_of("short", "bbbb", keywords=("bbbb",)),
        rule_of("long", "aabb", keywords=("aa",)),
    )
    redactor = Redactor(rules, key=KEY, extra=[rule_of("longest", "bbbbcc")])
    text = redactor.redact("xx aabbbbcc yy aabb")

    assert "xx [REDACTED:longest:" == text[:21]
    assert ["longest", "long"] == [kind for kind, _ in PLACEHOLDER.findall(text)]
    assert {"longest": 1, "long": 1} == redactor.counts


def test_counts_tell_kinds_and_never_values() -> None:
    """Twice the same secret counts twice; a second time over the text counts nothing."""
    redactor = Redactor(key=KEY)
    text = redactor.redact(f"{token()} {token()} PASSWORD={PASSWORD}")
    redactor.redact(text)

    assert {"github-token": 2, "password": 1} == redactor.counts


def test_a_text_without_secrets_is_the_same_object() -> None:
    """Nothing is copied for nothing."""
    text = "the token count of this session is 12, see https://h.internal/x"

    assert text is redact(text)


def test_a_redactor_can_be_sent_to_another_process() -> None:
    """Also after it has compiled its rules."""
    copy = pickle.loads(pickle.dumps(COMPILED))

    assert redact(token()) == copy.redact(token())


def test_nothing_is_compiled_before_it_is_needed() -> None:
    """Importing and making a redactor does not even load RE2."""
    code = (
        "import sys; from thence.memory.redact import Redactor; Redactor(key=b'k').redact('short');"
        "print('re2' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )

    assert "False" == result.stdout.strip()


# --- JSON ----------------------------------------------------------------------------------------


def test_a_json_value_is_redacted_in_every_part() -> None:
    """Texts, keys, and what only a name gives away; the rest is equal, the original untouched."""
    value = {
        "list": [1, None, True, {"deep": f"see {token()}"}],
        token(1): "key",
        "password": PASSWORD,
        "env": [{"name": "DB_PASSWORD", "value": PASSWORD}, {"name": "HOME", "value": "/root/dir"}],
        "passwords": [PASSWORD],
    }
    before = json.dumps(value)
    redactor = Redactor(key=KEY)
    redacted = redactor.redact_json(value)

    assert before == json.dumps(value)
    assert [1, None, True] == redacted["list"][:3]
    assert {"name": "HOME", "value": "/root/dir"} == redacted["env"][1]
    assert ["[REDACTED:password]"] == redacted["passwords"]
    assert {"github-token": 2, "password": 3} == redactor.counts
    assert not any(secret in json.dumps(redacted) for secret in (token(), token(1), PASSWORD))
    assert redacted == redactor.redact_json(redacted)


@pytest.mark.slow
def test_a_json_value_of_any_depth_is_redacted() -> None:
    """The walk does not recurse."""
    value: Any = token()
    for _ in range(50_000):
        value = [value]
    redacted = Redactor(key=KEY).redact_json(value)
    for _ in range(50_000):
        redacted = redacted[0]

    assert redact(token()) == redacted


@pytest.mark.slow
def test_any_number_of_names_is_judged() -> None:
    """Names are remembered, but never at the price of one."""
    redactor = Redactor(key=KEY)
    many = {f"password{number}": PASSWORD for number in range(4200)}

    assert {"[REDACTED:password]"} == set(redactor.redact_json(many).values())
    assert {"[REDACTED:password]"} == set(redactor.redact_json([many])[0].values())


def test_many_texts_are_redacted_as_one_by_one() -> None:
    """Searching them together finds nothing that is spread over two."""
    texts = ["pass", "word=", PASSWORD, "", f"a {token()}", "x" * 2000, f"{'y ' * 900}{token(1)}"]

    assert [redact(text) for text in texts] == Redactor(key=KEY).redact_all(texts)


# --- users' rules --------------------------------------------------------------------------------


def test_a_users_rule_is_used_like_the_others() -> None:
    """With keywords or without, with a group or without, in any script."""
    extra = [
        rule_of("ticket", r"TCK-(\d{6})", keywords=("tck-",), hashed=False),
        rule_of("wort", "geheim=([^ ]+)", keywords=("Geheim",)),
        rule_of("zeichen", "schlüssel=([^ ]+)", keywords=("SCHLÜSSEL",)),
    ]
    redactor = Redactor(key=KEY, extra=extra)
    text = redactor.redact("TCK-123456 GEHEIM= geheim=größe schlüssel=über x")

    assert re.fullmatch(
        r"TCK-\[REDACTED:ticket\] GEHEIM= geheim=\[REDACTED:wort:\w{8}\]"
        r" schlüssel=\[REDACTED:zeichen:\w{8}\] x",
        text,
    )


@pytest.mark.parametrize(
    ("name", "pattern", "reason"),
    [
        ("ahead", "a(?=b)", "RE2 refuses"),
        ("back", r"(a)\1", "RE2 refuses"),
        ("open", "(a", "RE2 refuses"),
        ("huge", "(?:(?:a{1000}){1000}){1000}", "RE2 refuses"),
        ("empty", "a*", "empty"),
        ("Bad Name", "a", "name"),
        ("bad]", "a", "name"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(name: str, pattern: str, reason: str) -> None:
    """With the reason, and a hint what to do."""
    with pytest.raises(BadConfig, match=reason) as caught:
        rule_of(name, pattern)

    assert caught.value.hint


def test_a_users_pattern_may_cut_characters() -> None:
    """The text still decodes, whatever bytes a pattern takes."""
    redactor = Redactor((), key=KEY, extra=[rule_of("byte", r"\C")])

    text = redactor.redact("日本語のテキスト")

    assert 8 == len(PLACEHOLDER.findall(text))
    assert "" == PLACEHOLDER.sub("", text)


# --- properties ----------------------------------------------------------------------------------

FRAGMENTS = st.sampled_from(
    [
        *(sample(rule.example, 9) for rule in RULES),
        *(sample(rule.near_miss, 9) for rule in RULES),
        *(word for rule in RULES for word in rule.keywords),
        *(
            '"',
            "'",
            "\\n",
            "\n",
            "=",
            ": ",
            "[",
            "]",
            "@",
            "-----",
            "[REDACTED:",
            ":1a2b3c4d]",
            "\ud800",
        ),
        *(
            "[REDACTED:token:1a2b3c4d]",
            "[REDACTED:password]",
            "é",
            "\0",
            "password=",
            "token=",
            "%3D",
        ),
    ]
)
TEXTS = st.one_of(
    st.text(st.characters(codec=None)),
    st.lists(FRAGMENTS, max_size=8).map("".join),
    st.lists(st.one_of(FRAGMENTS, st.text(max_size=6)), max_size=8).map("".join),
)


@given(TEXTS)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    """No text makes it raise; a redacted text has nothing left to redact or to count."""
    once = redact(text)
    counts = COMPILED.counts.copy()

    assert once == redact(once)
    assert counts == COMPILED.counts


@given(TEXTS, st.integers(0, 50), TEXTS)
def test_equal_secrets_stay_equal(before: str, seed: int, after: str) -> None:
    """A token is replaced by the same placeholder in every text that leaves it whole."""
    placeholder = redact(f" {token(seed)} ")
    redacted = redact(f"{before}\n {token(seed)} \n{after}")

    assert token(seed) not in redacted
    # Half a secret at the end of a line goes on in the next one: then they are one, and go as one.
    assume(redacted.startswith(redact(before)))
    assert placeholder in redacted or "[REDACTED:cookie" in redacted


LEAVES = st.one_of(st.none(), st.integers(), TEXTS)


def boxes(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists and objects of some values."""
    return st.one_of(st.lists(parts, max_size=3), st.dictionaries(TEXTS, parts, max_size=3))


# Two layers by hand: deeper ones take the same way, and `recursive` warns by chance.
VALUES = st.one_of(LEAVES, boxes(LEAVES), boxes(st.one_of(LEAVES, boxes(LEAVES))))


@given(VALUES)
def test_any_json_value_is_redacted_once(value: Any) -> None:
    """The value keeps its shape and nothing is left for a second time."""
    once = COMPILED.redact_json(value)

    assert once == COMPILED.redact_json(once)


# --- size ----------------------------------------------------------------------------------------


def chosen(letters: str) -> str:
    """A megabyte of these letters."""
    return "".join(random.Random(1).choices(letters, k=100_003)) * 10


HOSTILE = {
    "one letter": "a" * 3_000_000,
    "base64": chosen(FILLERS["b"]),
    "base64 for URLs": chosen(FILLERS["s"]),
    "names": "token=" * 200_000,
    "heads of keys": ("-----BEGIN PRIVATE " + "KEY-----\n") * 30_000,
    "starts of tokens": "eyJ" * 300_000,
    "quotes": '\\"' * 500_000,
    "addresses": "://a:" * 100_000,
    "half placeholders": "[REDACTED:" * 100_000,
    "commands": "curl -u " * 100_000,
    "blank lines": "password:" + " \n" * 300_000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_sizes_pass_through(what: str) -> None:
    """Work is linear: a pattern that backtracks would not come back from these."""
    assert HOSTILE[what] == redact(HOSTILE[what])


def test_a_secret_beside_a_blob_is_found() -> None:
    """Only the middle of encoded data is left out."""
    blob = HOSTILE["base64"][:100_000]
    text = redact(f"{token()} {blob} {token(1)}\n{blob}\n{token(2)}")

    assert 3 == len(PLACEHOLDER.findall(text))
    assert 2 == text.count(blob)


# --- real sessions -------------------------------------------------------------------------------


def leaves(folder: Path) -> Iterator[Any]:
    """Return every JSON value of the sessions in a folder."""
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            try:
                yield msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue


@pytest.mark.slow
def test_public_sessions_hold_hardly_anything_to_redact(shared: Path) -> None:
    """They were searched for secrets before they were published: what is found is a mistake."""
    public = shared / "data" / "public"
    if not public.is_dir():
        pytest.skip("no public sessions in ../shared")
    redactor = Redactor(key=KEY)
    size = 0
    for value in leaves(public):
        size += len(msgspec.json.encode(redactor.redact_json(value)))

    assert sum(redactor.counts.values()) <= 0.5 * size / 1e6, redactor.counts


# -- texts that are searched together ---------------------------------------------------------

pieces = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *("password", '"password": "', "token=", "Authorization: Bearer ", "machine a login b"),
            *(
                "-----BEGIN RSA PRIVATE KEY-----",
                "x" * 40,
                "\n",
                "\0",
                "://user:",
                "@host",
                "aB3" * 8,
            ),
        ]
    ),
    st.builds(
        lambda at, seed: sample(RULES[at].example, seed),
        st.integers(0, len(RULES) - 1),
        st.integers(0, 9),
    ),
)
texts = st.lists(pieces, max_size=3).map("".join)


@given(st.lists(texts, max_size=6))
def test_texts_of_a_value_are_judged_as_each_alone(value: list[str]) -> None:
    """That many are searched together hides no secret and makes none; what is clean is itself."""
    alone = [redact(text) for text in value]
    together = COMPILED.redact_json(value)

    assert alone == together
    assert (alone == value) == (together is value)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["password", "text", "a", "token"]), st.lists(texts)))
def test_what_one_look_clears_the_walk_clears(value: dict[str, list[str]]) -> None:
    """A value comes back as itself exactly when going over it text by text changes nothing."""
    walked = COMPILED._redact_value(value)

    assert walked == COMPILED.redact_json(value)
    assert (walked == value) == (COMPILED.redact_json(value) is value)


def test_encoded_data_beside_a_secret_hides_nothing() -> None:
    """A text that is mostly an image is searched around that, in a value as alone."""
    data = "".join(random.Random(1).choices(FILLERS["b"], k=40_000))
    value = {"image": data, "said": f"{data} token={token()}"}
    clean = COMPILED.redact_json(value)

    assert data == clean["image"]
    assert token() not in clean["said"]
    assert {"image": data} == COMPILED.redact_json({"image": data})
