"""URLs of other tools' databases and servers, as they may be shown and stored."""

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

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
