"""Columns of trials: the order of their parameters."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protein.columns import in_order


@given(
    names=st.lists(st.sampled_from("abcdef"), max_size=6),
    listed=st.one_of(
        st.lists(st.sampled_from("abcd"), unique=True).map(lambda names: [{"name": name} for name in names]),
        st.sampled_from([None, 3, "ab", [3], [{}], [{"name": []}, {"name": "b"}]]),
    ),
)
def test_names_are_ordered_by_any_space_without_loss(names: list[str], listed: Any) -> None:
    found = in_order(names, {"parameters": listed})
    assert sorted(found) == sorted(set(names))
    own = [one.get("name") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    assert [name for name in found if name in own] == [name for name in own if name in names]
    assert [name for name in found if name not in own] == [one for one in dict.fromkeys(names) if one not in own]
