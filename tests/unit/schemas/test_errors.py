"""The root of all errors."""

from __future__ import annotations

from schemas.errors import RegistryError


def test_more_advice_makes_another_error_of_the_same_kind() -> None:
    error = RegistryError("id 7 is not known", remedy="Look at the registry.", schema_id=7)
    more = error.advising("Then drop slot s.")
    assert error.remedy == "Look at the registry."
    assert type(more) is RegistryError
    assert more.remedy == "Look at the registry. Then drop slot s."
    assert (more.message, more.context) == (error.message, error.context)
