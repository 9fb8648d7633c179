"""What the stand-ins for Snowflake, BigQuery and Redshift cannot show.

One table: a case of the conformance suite that fails on a stand-in though it is right on the product is
listed with the reason. All other cases pass. Everything that needs a stand-in is marked `long`.
"""

from __future__ import annotations

import pytest

__all__ = ["LACKING", "mark"]

LACKING: dict[str, dict[str, str]] = {
    "fakesnow": {
        "test_a_name_is_only_a_name_when_it_is_hostile[robert'); DROP TABLE t; --]": (
            "fakesnow does not escape the quote of a name in statements of its own"
        ),
    },
    "bqemulator": {
        name: f"bqemulator {reason}"
        for reason, names in {
            "does not show columns that ALTER TABLE added": (
                "test_a_key_is_made_when_its_column_comes_later",
                "test_columns_are_added_and_none_is_dropped_when_a_table_is_patched",
                "test_two_patches_agree_when_they_come_at_once",
            ),
            "does not keep a PRIMARY KEY": (
                "test_a_users_own_key_is_used_when_it_is_the_configured_one",
                "test_a_users_own_key_stays_when_none_is_configured",
            ),
            "forgets the digits of a NUMERIC": (
                "test_a_value_goes_to_unmapped_when_the_explicit_type_does_not_take_it",
                "test_an_explicit_type_is_made_and_cast_to_when_it_is_given",
            ),
            "takes no table of a long name, or of another script": (
                "test_a_name_is_only_a_name_when_it_is_hostile[\\u65e5\\u672c\\u8a9e]",
                "test_names_do_not_meet_when_they_differ_in_their_last_character",
            ),
        }.items()
        for name in names
    },
    "Postgres": {
        "test_names_do_not_meet_when_they_differ_in_their_last_character": (
            "Postgres cuts names at 63 bytes, Redshift at 127"
        ),
    },
}


def mark(item: pytest.Item) -> None:
    """Mark a case of the suite on a stand-in as long, and as failing if the stand-in cannot show it."""
    stand_in = getattr(getattr(item, "cls", None), "stand_in", "")
    if not stand_in:
        return
    item.add_marker(pytest.mark.long)
    lacking = LACKING[stand_in]
    name = getattr(item, "originalname", item.name)
    if reason := lacking.get(item.name, lacking.get(name, "")):
        item.add_marker(pytest.mark.xfail(run=False, reason=reason))
