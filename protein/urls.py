"""URLs of databases and servers as they may be shown and stored: ours, and those of other tools."""

import re
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

_SECRET = ("pass", "pwd", "secret", "token", "key")  # parts of the names of parameters that hold one


def without_password(url: str) -> str:
    """Returns a URL without user, password, and parameters that may hold one, such as `?password=`."""
    parts = urlsplit(url)
    if not parts.netloc and not parts.query:
        return url
    given = parse_qsl(parts.query, keep_blank_values=True)
    kept = [(name, value) for name, value in given if not any(word in name.lower() for word in _SECRET)]
    query = parts.query if len(kept) == len(given) else urlencode(kept)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query))


_HEAD = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*:/*)(.*)", re.DOTALL)
_SETTING = re.compile(r"(?i)\b(pass\w*|pwd)(\s*=\s*)('[^']*'|\S+)")  # of libpq's other form, host=... password=...


def hidden(url: str) -> str:
    """Returns the URL of a store without its password, also one that is malformed; a path stays as it is.

    Where a part may belong to the password, such as after an @ that was not written as %40, it is left out.
    """
    found = _HEAD.fullmatch(url)
    if found is None or ("@" not in found[2] and "?" not in found[2] and "://" not in url):
        return _SETTING.sub(r"\1\2***", url)
    scheme, rest = found.groups()
    main, mark, query = rest.partition("?")
    if "@" in query:  # perhaps the password holds a question mark
        main, mark, query = rest, "", ""
    user, at, place = main.rpartition("@")
    main = f"{user.partition(':')[0]}{at}{place}" if at else place
    kept = [part for part in query.split("&") if not _is_secret(part)]
    return f"{scheme}{main}{mark if kept and query else ''}{'&'.join(kept)}"


def _is_secret(part: str) -> bool:
    name = unquote(part.partition("=")[0]).lower()
    return any(word in name for word in _SECRET)
