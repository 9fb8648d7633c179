"""Statements about batch mode, its steps, types and files, and the tests that hold them."""

# ruff: noqa: E501 (names of tests are as long as they are)

from __future__ import annotations

__all__ = ["STATEMENTS"]

STATEMENTS: dict[str, dict[str, list[str]]] = {
    "Definitions": {
        "an event is a JSON object, one a line": [
            "tests/pipeline/test_batch.py::test_good_lines_land_when_bad_ones_are_between_them",
        ],
    },
    "Modes": {
        "batch destinations get their events from local files, once in so many minutes": [
            "tests/log/test_incoming.py::test_a_file_is_completed_when_it_is_old_enough",
            "tests/pipeline/test_batch.py::test_events_become_rows_when_a_complete_file_is_there",
        ],
        "an event goes the way of files and the way of queues where destinations of both modes want it": [
            "tests/log/test_streams.py::test_events_are_in_every_place_that_wants_them_when_they_are_answered",
        ],
        "an event goes to every destination that wants it; `only_keys` says which tokens a destination wants": [
            "tests/pipeline/test_batch.py::test_events_go_where_their_token_is_wanted_when_there_are_several_destinations",
            "tests/pipeline/test_batch.py::test_a_file_is_archived_when_no_destination_wants_it",
        ],
    },
    "Batch processing": {
        "an accepted event is written to the current file of its token first": [
            "tests/gateway/test_event_routes.py::test_an_event_is_on_disk_when_it_is_answered",
            "tests/log/test_incoming.py::test_events_are_in_the_file_of_their_token_when_they_are_answered",
        ],
        "files are rotated every N minutes, 5 unless configured": [
            "tests/log/test_incoming.py::test_a_file_is_completed_when_it_is_old_enough",
            "tests/log/test_incoming.py::test_a_file_is_completed_when_it_is_idle_and_old",
            "tests/pipeline/test_batch.py::test_files_are_rotated_every_five_minutes_when_nothing_else_is_configured",
        ],
        "files are processed apart from the intake": [
            "tests/cli/test_up.py::test_the_pipeline_is_a_part_when_there_are_destinations",
            "tests/pipeline/test_cli.py::test_what_gathered_becomes_rows_and_the_numbers_add_up_when_it_is_run",
        ],
        "all complete files that no other pipeline is loading are loaded": [
            "tests/pipeline/test_shared_staging.py::test_a_backlog_is_done_in_few_cycles_when_files_are_tiny",
            "tests/pipeline/test_shared_staging.py::test_the_others_of_its_group_are_loaded_when_a_file_disappears_in_the_middle",
            "tests/log/test_incoming.py::test_files_are_found_oldest_first_and_strangers_are_left_when_the_folder_is_read",
            "tests/pipeline/test_batch.py::test_another_pipelines_file_is_left_alone_when_it_holds_it",
            "tests/pipeline/test_faults.py::test_every_row_is_there_once_when_two_pipelines_share_a_folder",
        ],
        "the template gives the table, event by event": [
            "tests/pipeline/test_batch.py::test_each_event_goes_to_its_table_when_the_name_is_a_template",
            "tests/pipeline/test_route.py::test_every_template_gives_its_name_when_it_is_compiled",
        ],
        "an empty table name skips the destination": [
            "tests/pipeline/test_batch.py::test_each_event_goes_to_its_table_when_the_name_is_a_template",
            "tests/pipeline/test_batch.py::test_every_event_is_skipped_when_the_template_gives_nothing",
        ],
        "an event whose table cannot be evaluated goes to the failed events": [
            "tests/pipeline/test_batch.py::test_an_event_is_a_reject_when_its_template_fails",
            "tests/pipeline/test_route.py::test_an_event_fails_when_its_table_name_has_an_error",
        ],
        "a pair of destination and table that was processed is not processed again": [
            "tests/pipeline/test_batch.py::test_a_pair_is_never_done_again_when_its_status_says_so",
            "tests/pipeline/test_batch.py::test_nothing_is_doubled_when_the_ledger_knows_the_load",
            "tests/pipeline/test_shared_staging.py::test_nothing_is_doubled_when_a_crash_parts_a_group_and_the_next_one_is_another",
        ],
        "lookup enrichment comes before mapping": [
            "tests/pipeline/test_lookup_join.py::test_results_are_mapped_when_the_mapping_moves_them",
        ],
        "the header of a batch has every field with its type, also one that appears late": [
            "tests/pipeline/test_field_tree.py::test_a_field_is_found_when_only_the_last_of_many_lines_has_it",
            "tests/pipeline/test_field_tree.py::test_every_json_type_is_found_when_lines_are_parsed",
            "tests/pipeline/test_field_tree.py::test_partitions_are_merged_in_their_order_when_they_differ",
        ],
        "each pair of destination and table has a header of its own": [
            "tests/pipeline/test_batch.py::test_each_event_goes_to_its_table_when_the_name_is_a_template",
        ],
        "a conflict of types is resolved by promotion": [
            "tests/pipeline/test_destinations.py::test_all_pairs_of_kinds_are_promoted_and_converted_when_they_meet_in_a_batch",
        ],
        "the header becomes a table with the product's SQL types and the configured key": [
            "tests/pipeline/test_destinations.py::test_the_types_are_the_documented_ones_when_nothing_is_cast",
            "tests/pipeline/test_destinations.py::test_the_last_event_wins_on_every_product_when_a_key_repeats",
        ],
        "the structure of the destination's own table is looked at": [
            "tests/pipeline/test_batch.py::test_a_users_table_is_used_as_it_is_when_it_exists",
            "tests/pipeline/test_project.py::test_a_value_is_cast_or_kept_aside_when_the_column_exists_with_another_kind",
        ],
        "patching happens under the destination's lock, which may be shared by machines": [
            "tests/destinations/test_locks.py::test_only_one_works_at_a_time_when_many_want_to",
            "tests/pipeline/test_faults.py::test_every_row_and_column_is_there_when_two_pipelines_share_a_table",
        ],
        "the lock is released": [
            "tests/destinations/test_locks.py::test_the_lock_is_free_again_when_its_holder_is_killed",
            "tests/destinations/test_locks.py::test_the_lock_is_free_when_its_holder_raised",
        ],
        "both structures are compared": [
            "tests/destinations/test_tables.py::test_only_what_is_missing_is_added_when_a_table_exists",
            "tests/destinations/test_tables.py::test_all_columns_are_made_when_there_is_no_table",
        ],
        "the primary key is maintained": [
            "tests/destinations/test_tables.py::test_a_key_is_ours_to_change_and_a_users_is_not_when_they_differ",
            "tests/pipeline/test_batch.py::test_the_last_event_wins_when_a_key_repeats",
            "tests/destinations/test_duckdb.py::TestDuckDB::test_the_key_is_replaced_when_another_is_configured",
            "tests/destinations/test_postgres.py::TestPostgres::test_the_key_is_replaced_when_another_is_configured",
            "tests/destinations/test_clickhouse.py::TestClickHouse::test_the_key_is_replaced_when_another_is_configured",
            "tests/destinations/test_duckdb.py::TestDuckDB::test_the_key_is_dropped_when_none_is_configured_any_more",
        ],
        "a missing column is added": [
            "tests/pipeline/test_batch.py::test_columns_are_added_and_values_kept_aside_when_later_batches_differ",
            "tests/destinations/test_postgres.py::TestPostgres::test_columns_are_added_and_none_is_dropped_when_a_table_is_patched",
            "tests/destinations/test_clickhouse.py::TestClickHouse::test_columns_are_added_and_none_is_dropped_when_a_table_is_patched",
        ],
        "a column that the batch lacks is left alone": [
            "tests/pipeline/test_batch.py::test_columns_are_added_and_values_kept_aside_when_later_batches_differ",
            "tests/destinations/test_duckdb.py::TestDuckDB::test_columns_are_added_and_none_is_dropped_when_a_table_is_patched",
        ],
        "rows are stored in bulk, with the casts of the mapping": [
            "tests/destinations/test_duckdb.py::test_values_are_cast_twice_when_a_column_is_made_with_another_type",
            "tests/destinations/test_postgres.py::test_users_types_are_cast_to_when_a_table_is_his_own",
            "tests/destinations/test_duckdb.py::TestDuckDB::test_an_explicit_type_is_made_and_cast_to_when_it_is_given",
            "tests/destinations/test_postgres.py::TestPostgres::test_an_explicit_type_is_made_and_cast_to_when_it_is_given",
            "tests/destinations/test_clickhouse.py::TestClickHouse::test_an_explicit_type_is_made_and_cast_to_when_it_is_given",
        ],
        "success is noted in the file's status": [
            "tests/pipeline/test_shared_staging.py::test_each_file_has_its_own_numbers_when_several_are_loaded_together",
            "tests/log/test_file_status.py::test_the_file_has_its_documented_form_when_it_is_read_by_others",
            "tests/pipeline/test_batch.py::test_the_status_goes_to_the_archive_with_its_file_when_all_is_done",
        ],
        "failure is noted there too, with the reason": [
            "tests/pipeline/test_batch.py::test_the_others_are_served_when_one_destination_is_down",
            "tests/pipeline/test_cli.py::test_a_file_stays_with_the_reason_when_its_destination_is_unreachable",
        ],
        "a file goes to the archive when all of its pairs are done, and not before": [
            "tests/pipeline/test_batch.py::test_events_become_rows_when_a_complete_file_is_there",
            "tests/pipeline/test_batch.py::test_the_others_are_served_when_one_destination_is_down",
        ],
    },
    "Context enrichment": {
        "browser events get address, time, key and user agent": [
            "tests/gateway/test_context.py::test_a_browsers_event_gets_the_gateways_fields_when_it_has_nothing",
        ],
        "events of servers get address, time, key, `src` and an id": [
            "tests/gateway/test_context.py::test_a_servers_event_gets_the_gateways_fields_when_it_has_nothing",
        ],
    },
    "Lookup enrichment": {
        "a rule takes the text of one node and puts an object at another": [
            "tests/pipeline/test_lookup_join.py::test_a_configured_rule_is_applied_when_events_come_from_servers",
        ],
        "addresses give a place": [
            "tests/pipeline/enrich/test_ip_lookup.py::test_the_country_is_found_when_an_address_is_public",
            "tests/pipeline/enrich/test_ip_lookup.py::test_the_place_is_found_when_a_city_database_knows_it",
        ],
        "user agents give browser, system and device": [
            "tests/pipeline/enrich/test_user_agent.py::test_browser_system_and_device_are_found_when_they_are_known",
        ],
        "both rules apply to browser events unasked": [
            "tests/pipeline/test_lookup_join.py::test_browser_events_are_enriched_by_themselves_when_they_carry_the_clients_key",
        ],
    },
    "Mapping": {
        "fields that no line names are kept, or not": [
            "tests/pipeline/test_mapping.py::test_only_mapped_fields_stay_when_unmapped_ones_are_not_kept",
            "tests/pipeline/test_mapping.py::test_fields_are_flattened_in_their_order_when_nothing_is_mapped",
        ],
        "a path is a pointer; the first slash of `dst` may be missing": [
            "tests/pipeline/test_batch_schema.py::test_the_leading_slash_may_be_missing_when_a_field_is_named",
            "tests/pipeline/test_mapping.py::test_keys_with_special_characters_are_found_when_pointers_escape_them",
        ],
        "`move` takes a subtree elsewhere": [
            "tests/pipeline/test_mapping.py::test_a_subtree_goes_elsewhere_when_it_is_moved",
        ],
        "`move` may name a type": [
            "tests/pipeline/test_mapping.py::test_a_type_is_assigned_when_a_move_names_one",
        ],
        "`remove` drops a subtree, without `dst`": [
            "tests/pipeline/test_mapping.py::test_a_subtree_is_gone_when_it_is_removed",
        ],
        "`cast` gives a node an SQL type of the product, without `dst`": [
            "tests/pipeline/test_mapping.py::test_a_type_is_assigned_when_a_field_is_cast_by_src_or_by_dst",
            "tests/pipeline/test_batch.py::test_the_mapping_is_applied_when_it_is_configured",
        ],
        "`constant` sets a value, without `src`": [
            "tests/pipeline/test_mapping.py::test_a_constant_is_set_when_it_is_configured",
            "tests/pipeline/test_mapping.py::test_a_constant_has_the_kind_of_its_value_when_no_type_is_given",
        ],
        "a line that lacks what its action needs is a mistake": [
            "tests/pipeline/test_mapping.py::test_every_mistake_is_named_when_a_mapping_is_checked",
        ],
        "then the event is flattened, and special characters of names become underscores": [
            "tests/pipeline/test_mapping.py::test_fields_are_flattened_in_their_order_when_nothing_is_mapped",
            "tests/pipeline/test_batch_schema.py::test_special_characters_become_underscores_when_a_path_is_named",
        ],
        "`_timestamp` of any event and `utc_time` of browser events are timestamps": [
            "tests/pipeline/test_mapping.py::test_times_are_cast_by_themselves_when_the_event_has_them",
        ],
        "what is configured has priority over that": [
            "tests/pipeline/test_mapping.py::test_the_configured_mapping_has_priority_when_it_casts_an_implicit_field",
        ],
    },
    "Types": {
        "without a cast the JSON type decides, by the table of each product": [
            "tests/pipeline/test_destinations.py::test_the_types_are_the_documented_ones_when_nothing_is_cast",
            "tests/destinations/test_duckdb.py::TestDuckDB::test_a_table_has_the_products_types_when_it_is_created",
            "tests/destinations/test_postgres.py::TestPostgres::test_a_table_has_the_products_types_when_it_is_created",
            "tests/destinations/test_clickhouse.py::TestClickHouse::test_a_table_has_the_products_types_when_it_is_created",
        ],
        "arrays are JSON texts": [
            "tests/pipeline/test_project.py::test_arrays_are_json_text_when_they_are_stored",
            "tests/pipeline/test_destinations.py::test_all_pairs_of_kinds_are_promoted_and_converted_when_they_meet_in_a_batch",
        ],
        "promotion is the lowest common ancestor in the tree, for all pairs": [
            "tests/destinations/test_types.py::test_the_lowest_common_ancestor_is_chosen_when_two_kinds_meet",
            "tests/destinations/test_types.py::test_the_order_does_not_matter_when_many_kinds_meet",
            "tests/pipeline/test_project.py::test_values_become_the_common_ancestor_when_two_kinds_meet_in_a_batch",
        ],
        "all pairs, on every product, values converted": [
            "tests/pipeline/test_destinations.py::test_all_pairs_of_kinds_are_promoted_and_converted_when_they_meet_in_a_batch",
            "tests/destinations/test_duckdb.py::TestDuckDB::test_every_row_lands_when_a_column_has_another_kind",
            "tests/destinations/test_postgres.py::TestPostgres::test_every_row_lands_when_a_column_has_another_kind",
            "tests/destinations/test_clickhouse.py::TestClickHouse::test_every_row_lands_when_a_column_has_another_kind",
        ],
    },
    "Files": {
        "all of them are in a folder that is configured": [
            "tests/test_settings.py::test_tokens_and_destinations_arrive_when_they_are_set",
        ],
        "names of incoming files have the token, and the time once they are complete": [
            "tests/log/test_incoming.py::test_files_are_found_oldest_first_and_strangers_are_left_when_the_folder_is_read",
            "tests/log/test_incoming.py::test_names_differ_and_keep_their_order_when_the_clock_goes_back",
        ],
        "the status lies beside its file": [
            "tests/log/test_file_status.py::test_a_pair_is_done_when_it_was_marked_so_and_saved",
        ],
        "the archive has days, and compressed files as they were": [
            "tests/log/test_archive.py::test_a_file_is_compressed_under_its_day_with_its_status_when_it_is_done",
            "tests/pipeline/test_batch.py::test_events_become_rows_when_a_complete_file_is_there",
        ],
        "failed events have a file per destination: the event as it was, with its error": [
            "tests/pipeline/test_batch.py::test_an_event_is_a_reject_when_its_template_fails",
        ],
        "failed events that were tried again are archived under their destination's name": [
            "tests/pipeline/test_batch.py::test_rejects_are_loaded_when_they_are_replayed_after_the_fix",
        ],
    },
}
