"""URLs as they are shown: nothing secret, and the rest as it was given."""

import pytest

from protein.urls import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:secret@host:5432/runs", "postgresql://host:5432/runs"),
        ("mysql://host/runs?password=secret&charset=utf8", "mysql://host/runs?charset=utf8"),
        ("https://user@host/api?api_key=secret", "https://host/api"),
        ("postgresql://host/runs?sslmode=require", "postgresql://host/runs?sslmode=require"),
        ("sqlite:///folder/a b.db", "sqlite:///folder/a b.db"),
        ("runs/study.db", "runs/study.db"),
        ("C:\\runs\\study.db", "C:\\runs\\study.db"),
    ],
)
def test_a_url_is_shown_without_what_is_secret(url: str, shown: str) -> None:
    assert without_password(url) == shown
