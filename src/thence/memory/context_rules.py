"""Secrets of no service: known by their format, or by what stands before them.

One row per kind; see `rules` for what a row is and where the facts come from.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from re import escape

from thence.memory.rules import FOLD, LINE_END, SET, START, Rule, long, row, word

_GAP = r"[^A-Za-z+/-]{1,24}(?:[nrt][^A-Za-z+/-]{0,24}){0,2}(?:\+[^A-Za-z+/-]{1,24})?-?"
"""Between two lines of a key: a break, plain or escaped, quotes, signs, the number of the line."""

_END = rf"{_GAP}----END[ A-Z0-9]{{0,60}}-----"

_KEY_BLOCK = (
    r"-----BEGIN[ A-Z0-9]{0,40} ?PRIVATE KEY(?: BLOCK)?-----"
    # Headers of encrypted and of PGP keys.
    rf"(?:{_GAP}[A-Z][A-Za-z-]{{2,20}}: [^\r\n\\]{{1,80}}){{0,4}}"
    rf"{_GAP}[0-9A-Za-z+/=]{{32,}}(?:{_GAP}[0-9A-Za-z+/=]{{16,}})*"
    rf"(?:{_END}|{_GAP}[0-9A-Za-z+/=]{{1,15}}(?:{_END})?)?"
)

_ENCODED_BLOCK = (
    "BSU0EgUFJJVkFURSBLRV|BFQyBQUklWQVRFIEtFW|BQUklWQVRFIEtFW|BFTkNSWVBURUQgUFJJVkFURSBLRV"
    "|BPUEVOU1NIIFBSSVZBVEUgS0VZ"
)
"""How `PRIVATE KEY` lines go on in base64, after the dashes and BEGIN."""

_OWNERS = "api|app|access|auth|secret|private|client|encryption|signing|master|deploy|account|admin"
_NAMES = (
    rf"(?:{_OWNERS})[_.-]?(?:key|secret|token)"
    r"|(?:refresh|bearer|session|id|bot|webhook|service)[_.-]?token|secret"
)
"""Names that are given to nothing but secrets."""

_NAME_WORDS = "secret token _key -key .key " + " ".join(
    f"{owner}key" for owner in _OWNERS.split("|")
)

_VALUE = r"([0-9A-Za-z][0-9A-Za-z_.~+/=-]{11,})(?:[^0-9A-Za-z_.~+/=(\[{-]|\z)"
"""A value to its end; not what is called or indexed."""

_BEGUN = r"[0-9A-Za-z][0-9A-Za-z_.~+/=-]{11}"
"""As much of a value as there must be."""

_SIGNS = r"""\\"'\x60\])(\[ =:>,\s"""
"""All that stands between a name and its value, in text and in JSON; escapes end in a letter."""

_BESIDE = r"""[\\"'\x60\])]*"(?::\[|[,}])"""
"""Behind a name that JSON gives to every text of a list, or to the `value` beside it."""


def _near(names: str, more: str = "") -> str:
    """Return what is there wherever a name is given a value: a cheap look for both of them."""
    return rf"(?:{names})[\w.-]*(?:[{_SIGNS}][{_SIGNS}ntrf]*{more}{_BEGUN}|{_BESIDE})"


_QUOTED = r"""\\{0,3}["'\x60]"""

_PASSWORDS = r"passw(?:or)?d|passwd|passphrase|pwd|[_-]pass"


def _encodings_of(word: str) -> Iterator[str]:
    """Yield how a word looks in base64, for each place it may begin at."""
    for shift in range(3):
        body = b64encode(b"\0" * shift + word.encode()).decode().rstrip("=")
        begin = (0, 2, 3)[shift]
        yield body[begin : (shift + len(word)) * 8 // 6]


_ENCODED_NAMES = [
    form
    for name in ("PASSWORD=", "SECRET", "_TOKEN=", "API_KEY=", "password=")
    for form in _encodings_of(name)
]

_QUOTED_VALUE = r"""\\{0,3}["']([^"'\\\r\n]{4,256})\\{0,3}["']"""
_BARE_VALUE = r"""([^\s"'\\$%<>]{4,256})"""

_FORMATS: tuple[Rule, ...] = (
    row(
        "private-key",
        _KEY_BLOCK,
        "-----begin",
        "-----BEGIN RSA PRIVATE KEY-----\n{b64}\n{b64}\n{b40}=\n-----END RSA PRIVATE KEY-----",
        'if "-----BEGIN RSA PRIVATE KEY-----" in text: raise Leak',
        entropy=3.5,
    ),
    row(
        "putty-key",
        r"Private-Lines: \d+((?:[^0-9A-Za-z+/]{1,4}n?[0-9A-Za-z+/]{40,64}={0,2})+)",
        "private-lines:",
        "Private-Lines: 2\n{b64}\n{b60}==\nPrivate-MAC: x",
        "Private-Lines: 14",
    ),
    row(
        "encoded-key",
        long(f"LS0tLS1CRUdJTi(?:{_ENCODED_BLOCK})", "0-9A-Za-z+/=", 40),
        "ls0tls1crudjti",
        "client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVkt{b300}",
        "certificate: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t{b100}",
    ),
    row(
        "client-key",
        r"client-key-data[\\\"': ]{1,6}([0-9A-Za-z+/]{40,}={0,2})",
        "client-key-data",
        "client-key-data: {b200}==",
        "client-key-data: REDACTED",
    ),
    row(
        "age-key",
        r"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}",
        "age-secret-key-1",
        "AGE-SECRET-KEY-1{B58}",
        "AGE-SECRET-KEY-1...",
    ),
    row(
        "wireguard-key",
        r"(?i:PrivateKey|PresharedKey)\s{0,3}=\s{0,3}([0-9A-Za-z+/]{43}=)",
        "privatekey presharedkey",
        "PrivateKey = {b43}=",
        "PrivateKey = ...",
    ),
    row(
        "bitcoin-key",
        word(r"[xyz]prv[1-9A-HJ-NP-Za-km-z]{107,108}\b"),
        "xprv yprv zprv",
        "xprv{x107}",
        "xprv",
    ),
    row(
        "jwt",
        rf"(?:(eyJ[\w-]{{8,}}[\w.-]*(?:{FOLD}[\w.-]{{4,}})+){LINE_END}"
        r"|(eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}))",
        "eyj",
        "eyJhbGciOiJIUzI1NiJ9.eyJ{s60}.{s43}",
        "eyJhbGciOiJIUzI1NiJ9",
        shape=r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}(?:\.[\w.-]*)?",
    ),
    row(
        "encoded-jwt", word(r"ZXlK[0-9A-Za-z+/_-]{80,}={0,2}"), "zxlk", "ZXlKaGJHY2lP{b120}", "ZXlK"
    ),
    row(
        "password-hash",
        r"\$(?:[156y]|2[abxy]|apr1|argon2id?)\$[./0-9A-Za-z$=,+]{22,}",
        "$1$ $5$ $6$ $y$ $2a$ $2b$ $2x$ $2y$ $apr1$ $argon2",
        "root:$6${A16}${A86}:19000:0:99999:7:::",
        "sed s/a/$1$2/",
        hashed=False,
    ),
)

_SPOKEN: tuple[Rule, ...] = (
    row(
        "encoded-env",
        rf"[0-9A-Za-z+/]*(?:{'|'.join(map(escape, _ENCODED_NAMES))})[0-9A-Za-z+/]{{4,}}={{0,2}}",
        " ".join(sorted({form.lower() for form in _ENCODED_NAMES})),
        "echo REJfUEFTU1dPUkQ9{A24} | base64 -d",
        "class is UEFTU1dPUkQ9, a word in base64",
        entropy=2.5,
        hashed=False,
        check="env",
    ),
    row(
        "seed-phrase",
        r"(?i:seed|mnemonic|recovery phrase|backup phrase)(?i:[ _-]?(?:phrase|words?))?[^\n]{0,40}?"
        r"[\s:=\"'\x60\\n]{1,8}((?:\d{1,2}[.)] ?)?[a-z]{3,8}"
        r"(?:(?:\s{1,3}|\\n|, ?)(?:\d{1,2}[.)] ?)?[a-z]{3,8}){11,23})\b",
        "seed mnemonic phrase",
        "seed phrase: {l5} {l6} {l4} {l7} {l5} {l6} {l5} {l8} {l3} {l6} {l5} {l7}",
        "the seed decides which numbers follow, and the test prints them for whoever looks",
        entropy=2.5,
        hashed=False,
        check="seed",
    ),
    row(
        "pgpass",
        r"(?:^|[\s\"'\x60]|\\n)(?:\*|localhost|[A-Za-z][\w-]*(?:\.[\w-]+)+|\d+\.\d+\.\d+\.\d+)"
        r":(?:\d{4,5}|\*):(?:\*|[A-Za-z_][\w-]{0,62}):(?:\*|[A-Za-z_][\w.-]{0,62}):"
        r"((?:[^\s:\"'\x60\\]|\\[:\\]){4,128})",
        ":",
        "db.internal:5432:app:deploy:{A12}",
        "a.py:1024:20: error: expected one of: x",
        entropy=0.0,
        hashed=False,
        near=r":(?:[0-9]{4}|[0-9]{5}|\*):[\w*-]+:[\w.*-]+:",
    ),
    row(
        "setx-secret",
        rf"(?i){START}setx"
        r"\s{1,4}(?:/\S{1,8}\s{1,4})?\w{0,48}"
        r"(?:pass\w{0,12}|pwd|secret\w{0,12}|token\w{0,12}|key|pin|auth|cred\w{0,12})\s{1,4}"
        rf"(?:{_QUOTED_VALUE}|{_BARE_VALUE})",
        "setx",
        'setx DEPLOY_PIN "{A14}"',
        'setx EDITOR "notepad"',
        entropy=0.0,
        hashed=False,
    ),
    row(
        "yaml-password",
        r"(?im)(?:^|\\n|[\"'])[ \t]{0,40}(?:- )?(?:[\w.-]{0,24}[\w.])?"
        r"(?:pass(?:word|wd|phrase)?|pwd):[ \t]{1,8}"
        rf"(?:{_QUOTED_VALUE}|([^\s\"'#{{\[|>&*%@\x60\\][^\s\"'\\]{{3,127}}))"
        r"[ \t]*(?:$|\r|#|\\{1,4}[nr\"']|[\"'])",
        "pass pwd",
        "db:\n  user: app\n  pass: {A6}#&!{d2}\n",
        "tests:\n  pass: 12\n  fail: 0\n",
        entropy=0.0,
        hashed=False,
        strict=True,
        near=r"(?:pass(?:word|wd|phrase)?|pwd):[ \t\\]",
    ),
    row(
        "xml-password",
        r"(?i)<(?:[\w.-]{0,30}[.:_-])?(?:password|passphrase|passwd|pwd|secret)>\s{0,4}"
        r"([^\s<>]{4,256})\s{0,4}\\?</",
        "password> passphrase> passwd> pwd> secret>",
        "<server><password>{A10}</password></server>",
        "<password>${env.CI_PASSWORD}</password>",
        entropy=0.0,
        hashed=False,
    ),
    row(
        "said-password",
        r"(?i)\b(?:password|passphrase|passwd|pwd)(?: (?:for|of|to) [\w .@'-]{1,40}?)?"
        r"(?: is| was|'s)(?: now| currently)?:? {1,2}[\"'\x60]?"
        r"([^\s\"'\x60,;<>\\]{3,127}[^\s\"'\x60,;:<>.?)\\])",
        "passw passphrase pwd",
        "the admin password is {L6}{d2}{l3} for now",
        "the password is hashed with bcrypt; a passphrase is 8-20 characters",
        entropy=0.0,
        hashed=False,
        check="said",
        near=r"(?:password|passphrase|passwd|pwd)(?:'s| is| was| for| of| to)[: ]",
    ),
)

_COLON = r"[\\\"']{0,6}\s{0,3}[:=,]\s{0,3}[\\\"']{0,4}"
"""Between a header and its value, as text, as JSON and as arguments of a call."""

_CONTEXTS: tuple[Rule, ...] = (
    row(
        "url-password",
        r"://[^\s/:@\"'\x60<>\\\[\](){}$]{0,64}:([^\s/@\"'\x60<>\\\[\](){}$]{3,256})@[\w\[%-]",
        "://",
        "postgres://app:{A12}@db.internal:5432/app",
        "postgres://user:password@localhost:5432/app",
        entropy=0.0,
        hashed=False,
    ),
    row(
        "url-token",
        r"://([0-9A-Za-z_.~+-]{20,})@[\w-]",
        "://",
        "https://{A40}@git.internal/team/repo",
        "https://first.last.of.some.company@mail.internal/",
        strict=True,
    ),
    row(
        "url-parameter",
        r"(?i)[?&](?:(?:access_|auth_|id_|refresh_)?token|api_?key|key|(?:client_)?secret|code|auth"
        r"|passwd|password|jwt|session|(?:x-(?:amz|goog)-)?signature|x-amz-security-token)="
        r"([0-9A-Za-z%._~+/-]{16,})",
        "token= key= secret= password= passwd= signature= code= auth= jwt= session=",
        "https://api.internal/v1?limit=5&access_token={A32}",
        "https://shop.internal/?code=summer-sale-starts-here",
        strict=True,
    ),
    row(
        "bearer-token",
        rf"(?i)\b(?:bearer|authorization{_COLON}(?:token|apikey|api-key|bot|key))\s{{1,3}}"
        r"([0-9A-Za-z_.~+/=-]{16,})",
        "bearer authorization",
        "Authorization: Bearer {s40}",
        "Authorization: Bearer <token>",
        strict=True,
        ids=True,
    ),
    row(
        "basic-auth",
        rf"(?i)authorization{_COLON}basic\s{{1,3}}([0-9A-Za-z+/_-]{{8,}}={{0,2}})",
        "authorization",
        "Authorization: Basic {b32}",
        "Authorization: Basic <credentials>",
        entropy=2.5,
        hashed=False,
    ),
    row(
        "api-header",
        r"(?i)\b(?:x-[a-z-]{0,24}(?:key|token|secret|auth)|private-token|api-?key"
        rf"|dd-application-key){_COLON}([0-9A-Za-z_.~+/=-]{{16,}})",
        "-key -token -secret -auth apikey",
        "X-Api-Key: {A32}",
        "x-api-key: your-api-key-goes-here",
        strict=True,
        ids=True,
    ),
    row(
        "cookie",
        r"(?i)\bcookie[\\\"']{0,6}\s{0,3}:\s{0,3}[\\\"']{0,4}"
        r"((?:[\w.-]{1,64}=[^;\s\"'\\]{0,15};\s{0,2})*"
        r"[\w.%-]{1,64}=[0-9A-Za-z%._~+/:|=-]{16,}[^\r\n\"'\\]*)",
        "cookie",
        "Cookie: theme=dark; sid={A32}; lang=en",
        "Set-Cookie: theme=dark; Path=/",
    ),
    row(
        "session-cookie",
        r"(?i)(?:sess(?:ion)?(?:_?id)?|connect\.sid|\bsid|csrf(?:_?token)?|xsrf-token"
        r"|remember_?me)=([0-9A-Za-z%._~+/-]{20,})",
        "session= sessionid= session_id= sess= sessid= sid= csrf= csrftoken= csrf_token="
        " xsrf-token= rememberme= remember_me=",
        "document.cookie = 'PHPSESSID={n26}'",
        "?session=11111111-2222-3333-4444-555555555555",
        strict=True,
    ),
    row(
        "curl-password",
        rf"{START}curl"
        r"\b[^\n]{0,300}?\s(?:-u|--user)[ =]?[\\\"']{0,2}[^\s:\"'\\$<]{1,64}:"
        r"([^\s\"'\\$<@]{3,128})",
        "curl",
        "curl -sS -u deploy:{A14} https://ci.internal/job",
        "curl -u user:password https://ci.internal",
        entropy=0.0,
        hashed=False,
    ),
    row(
        "netrc-password",
        rf"{START}machine"
        r"\s{1,4}\S{1,100}\s{1,6}login\s{1,4}\S{1,100}\s{1,6}password\s{1,4}"
        r"([^\s\"'\\]{3,128})",
        "machine",
        "machine git.internal login deploy password {A14}",
        "the machine asks for login and password again",
        entropy=0.0,
        hashed=False,
    ),
    row(
        "option-password",
        r"(?:--[a-z-]{0,20}pass(?:word|wd|phrase)?|\bsshpass -p)(?:=| {1,3})[\\\"']{0,2}"
        r"([^\s\"'\\$<>|;&(){}\[\]-][^\s\"'\\<>|;&(){}]{3,128})",
        "--pass -pass sshpass",
        "createuser --db-password {A12}9! --host db",
        "pg_dump --password --host db",
        entropy=0.0,
        hashed=False,
        strict=True,
    ),
    row(
        "option-secret",
        rf"--[a-z-]{{0,24}}(?:token|key|secret)(?:=| {{1,3}})[\\\"']{{0,2}}{_VALUE}",
        "token --key -key secret",
        "deploy --auth-token {A32} --now",
        "gh auth --with-token < token-file-somewhere.txt",
        strict=True,
        near=rf"(?:token|key|secret)[= ][ \\\"']*{_BEGUN}",
    ),
    row(
        "dsn-password",
        r"(?i);\s?(?:password|pwd)\s?=\s?([^\s;\"'\\<>{}$\[\]]{3,128})(?:[;\"'\\\s]|\z)",
        "password pwd",
        "Server=db;User Id=app;Password={A12};Encrypt=true",
        "Server=db;Password=<password>;",
        entropy=0.0,
        hashed=False,
    ),
    row(
        "secret",
        rf"(?i)(?:{_NAMES})[\w.-]{{0,24}}"
        rf"(?:[ \t]{{0,3}}:[ \t]{{0,3}}(?:str|string|bytes|&str)[ \t]{{0,3}}=[ \t]{{0,3}}{_QUOTED}"
        rf"|{SET}){_VALUE}",
        _NAME_WORDS,
        'config["api_key"] = "{A32}"',
        "api_key = os.environ['API_KEY']",
        strict=True,
        ids=True,
        near=_near(
            rf"secret|token|[_.-]key|(?:{_OWNERS})key", rf"(?:&?(?:str|bytes)[{_SIGNS}ingtrf]*)?"
        ),
    ),
    row(
        "token",
        rf"(?i)(?:token|credentials?|[_-]key|[_-]auth|[_-]pat)[\w-]{{0,8}}{SET}{_VALUE}",
        "token credential _key -key _auth -auth _pat -pat",
        "BUILDKITE_AGENT_TOKEN={A40}",
        'token: "{h8}-{h4}-{h4}-{h4}-{h12}"',
        strict=True,
        near=_near("token|credential|[_-]key|[_-]auth|[_-]pat"),
    ),
    row(
        "password",
        rf"(?i)(?:{_PASSWORDS})[\w-]{{0,12}}(?:[\\\"'\x60\]]{{0,6}}[ \t]{{0,4}}"
        rf"(?:=>|:=|={{1,3}}|:)[ \t]{{0,4}}[bruf]{{0,2}}{_QUOTED}"
        rf"([^\s\"'\x60\\<>$]{{4,128}}){_QUOTED}"
        r"|(?:=|: ?)([^\s\"'\x60\\<>$,;(){}\[\]]{4,128}))",
        "passw passphrase pwd _pass -pass",
        "export PGPASSWORD={A10}4!",
        "password: string",
        entropy=0.0,
        hashed=False,
        strict=True,
    ),
)

CONTEXTS: tuple[Rule, ...] = _FORMATS + _SPOKEN + _CONTEXTS
