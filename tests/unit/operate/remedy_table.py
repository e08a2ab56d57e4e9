"""Which test executes each remedy. A remedy is found by the longest beginning of its text.

A new remedy has no entry, so ``test_remedies.py`` fails. Add the test that executes the remedy
here, or the reason why no test does in `untried_remedies`.
"""

from __future__ import annotations

_REMEDIES = "tests/integration/test_remedies.py::test_"
STATES = f"{_REMEDIES}a_command_that_a_state_refuses_names_the_one_that_helps"
EARLY = f"{_REMEDIES}what_is_refused_before_a_table_is_copied_names_what_helps"
FAILED = f"{_REMEDIES}a_failed_table_goes_on_or_is_copied_again_as_it_says"
LOST = f"{_REMEDIES}a_lake_that_lost_a_part_of_a_table_is_made_anew_as_each_command_says"
POLICIES = f"{_REMEDIES}policies_and_tables_that_went_away_go_on_as_they_say"
ANEW = f"{_REMEDIES}what_does_not_fit_the_plan_begins_anew_as_it_says"
CAPTURE = f"{_REMEDIES}a_capture_that_was_taken_apart_is_restored_as_it_says"
MOUNTED = f"{_REMEDIES}tables_of_a_lake_that_is_not_mounted_fail_and_continue_after_the_mount"
_TESTS = "tests/integration/test_"
_EDITED = f"{_TESTS}edited_names.py::test_"
_MOUNT = (
    "Mount the lake, or restore the folder; the next try then continues. If the folder is gone for"
    " good,"
)
EXECUTED: dict[str, tuple[str, ...]] = {
    f"{_TESTS}wal_limit.py::test_a_slot_that_holds_back_too_much_log_is_named_and_then_given_up": (
        "The next `tributary run` stops the connector and drops the slot",
        "Correct what kept the connector from reading, then",
    ),
    f"{_TESTS}wal_limit.py::test_a_capture_that_fills_the_disk_is_offboarded": (
        "Let the connector catch up: `tributary status` names",
    ),
    "tests/unit/operate/lineage/test_client_secrets.py::"
    "test_a_file_that_is_not_yaml_is_corrected": ("Correct the file; docs/lineage.md",),
    "tests/unit/operate/lineage/test_lineage.py::test_without_a_receiver_nothing_counts_as_sent": (
        "Set OPENLINEAGE_URL, or write",
    ),
    "tests/unit/operate/cli/test_complete.py::"
    "test_a_table_without_periods_or_off_the_plan_is_an_error": (
        "Set completeness: hour or day for the table",
    ),
    f"{_TESTS}lost_tables.py::"
    "test_a_state_store_that_lost_its_tables_is_told_until_it_is_restored": (
        "Check state.url. If the state store was lost, restore it",
    ),
    f"{_TESTS}lost_tables.py::"
    "test_tables_that_were_onboarded_since_the_restored_backup_are_named_until_they_are_again": (
        "Was the state store restored from a backup, or was a command interrupted? Then run"
        " `tributary onboard {}`",
    ),
    "tests/unit/cdc/lake/test_options.py::"
    "test_a_type_whose_text_is_not_one_for_each_value_makes_no_partitions": (
        "In partition_by, name columns with",
    ),
    "tests/unit/cdc/lake/test_partition_columns.py::test_a_column_of_a_wrong_type_is_refused": (
        "In partition_by, take hours",
    ),
    "tests/unit/cdc/lake/test_partition_columns.py::test_another_name_solves_it": (
        "Give the entry of partition_by another name",
    ),
    "tests/spark/test_lake_restored.py::"
    "test_a_commit_whose_file_a_power_cut_left_empty_is_refused": (
        "A machine that loses its power can leave a new file empty",
    ),
    "tests/spark/test_lake_restored.py::"
    "test_a_run_checks_the_files_of_a_commit_that_another_process_wrote": (
        "Was the lake copied while it was written",
    ),
    "tests/unit/operate/data_checks/test_command.py::"
    "test_a_failure_of_policy_pause_pauses_the_table_and_others_do_not": (
        "Correct the rows or the check, then run",
    ),
    "tests/unit/operate/data_checks/test_command.py::"
    "test_the_commands_print_results_and_end_with_their_exit_code": (
        "`tributary checks list` lists the checks",
    ),
    "tests/unit/operate/metrics/test_scrape.py::test_a_port_in_use_is_an_error_with_a_remedy": (
        "Choose another port with --port",
    ),
    "tests/unit/operate/metrics/test_scrape.py::test_a_file_is_replaced_in_one_step": (
        "Name a file in a folder that exists",
    ),
    "tests/unit/operate/test_followed.py::"
    "test_a_tier_without_tables_and_a_table_of_another_tier_are_refused": (
        "Leave out --tier, or name ",
    ),
    "tests/unit/cdc/runtime/test_class_archive.py::"
    "test_a_cache_that_cannot_be_written_is_named_and_another_one_helps": (
        "Name a folder that you can write with TRIBUTARY_CACHE",
    ),
    "tests/unit/cdc/run/test_published_settings.py::"
    "test_a_run_leaves_a_table_alone_that_another_process_has_resynced": (
        "Start this process again, so that it reads the configuration",
    ),
    f"{_TESTS}hdfs.py::test_check_says_what_hdfs_lacks_and_is_content_once_it_has_it": (
        "Give the user that Tributary has on HDFS the right to write",
        "The name node takes no changes while it is in safe mode",
    ),
    f"{_TESTS}s3.py::test_check_says_what_the_store_lacks_and_is_content_once_it_has_it": (
        "Allow s3:ListBucket",
        "Create the bucket",
        "The store does not accept the credentials",
        "The store does not answer",
    ),
    f"{_TESTS}postgres_source_reader.py::test_a_text_key_older_than_its_library_is_not_cut": (
        "Rebuild the indexes of such columns with REINDEX",
    ),
    f"{_TESTS}postgres_neighbours.py::"
    "test_the_first_onboarding_stops_no_subscriber_of_all_tables": (
        "Run on each subscriber, and then on the primary",
    ),
    f"{_TESTS}cluster.py::test_a_cluster_without_room_is_named_before_a_table_is_touched": (
        "Check that the cluster has cores",
    ),
    f"{_TESTS}cluster.py::test_a_master_that_is_away_or_silent_is_named_in_time": (
        "Check that spark.master names a cluster",
    ),
    f"{_TESTS}reader.py::test_changes_are_followed_through_a_resync_or_refused": (
        "Read the whole table once: call it without a position",
    ),
    f"{_TESTS}open_transactions.py::"
    "test_changes_behind_a_hanging_transaction_make_their_table_late": ("If it hangs, look for",),
    f"{_TESTS}mysql_failover.py::test_a_server_without_its_row_is_no_other_server": (
        "If it is that server, restore the row",
    ),
    f"{_TESTS}move.py::test_the_capture_of_a_move_that_was_cut_off_is_watched": (
        "{} Then run `tributary move {}`, which goes on with the move",
    ),
    f"{_TESTS}move.py::test_a_move_that_is_called_off_or_turned_leaves_no_capture_behind": (
        "Run `tributary move {",
    ),
    STATES: (
        "Copy the table again: `tributary bootstrap {}`",
        "Run `tributary bootstrap {}`",
        "Run `tributary resume {",
        "See `tributary status {}` for what it needs",
    ),
    EARLY: (
        "Delete topic {}",
        "Run `tributary onboard {",
        "See `tributary status {}` for what can be done",
        "Run `tributary move {}`, which takes it to tier",
    ),
    FAILED: (
        "It follows its stream: `tributary retry {table}`",
        "Look at the record with a Kafka client. Restore",
        "Run `tributary retry {}`.",
    ),
    LOST: (
        "If its copy is running, wait for its end; otherwise run `tributary run {}`",
        "To copy the table again, run `tributary run {}`, which marks the table",
        f"{_MOUNT} copy the table again: `tributary resync {{}}`",
        "Was the state store or the lake restored from a backup?",
    ),
    MOUNTED: (f"{_MOUNT} run `tributary offboard {{}}",),
    POLICIES: (
        "List the tables with `tributary discover`",
        "Set on_schema_change to evolve or freeze",
        "Set on_truncate to apply or ignore",
    ),
    ANEW: ("Set mode: ",),
    f"{_EDITED}other_names_are_refused_until_the_tables_are_onboarded_anew": (
        "Set {} back; or run `tributary offboard`",
    ),
    f"{_EDITED}another_folder_of_the_lake_is_refused_until_the_table_is_onboarded_anew": (
        "Set lake.url, lake.name and name of the table back",
    ),
    f"{_EDITED}a_connector_that_a_killed_command_left_is_named_before_there_are_two": (
        "If connector {} is left from an earlier name",
    ),
    CAPTURE: ("Run `tributary onboard` for one of its tables, or `tributary move`",),
    f"{_TESTS}mysql_known_definition.py::test_a_table_stops_whose_definition_the_connector_has"
    "_otherwise": ("Run ALTER TABLE {} MODIFY",),
    f"{_TESTS}mysql_known_definition.py::test_a_boolean_of_an_append_table_is_refused_or_stops_it"
    "_at_the_first_true": ("Run ALTER TABLE {} MODIFY for the column, as tinyint(1)",),
    f"{_TESTS}mysql_source.py::test_what_refuses_each_table_is_named_before_there_is_one": (
        "Stop the use of XA transactions",
    ),
    f"{_TESTS}postgres_shapes.py::test_what_the_log_has_no_rows_of_is_named": (
        "Run ALTER TABLE {} SET ACCESS METHOD heap",
    ),
    f"{_TESTS}refusals.py::test_refused_tables_fit_after_what_they_are_told": (
        "Detach it: ALTER TABLE",
        "Choose: {}.",
        "Make the primary key NOT DEFERRABLE",
        "Run ALTER TABLE ... SET LOGGED",
        "Run ALTER TABLE {} ADD PRIMARY KEY",
        "Run ALTER TABLE {} REPLICA IDENTITY",
        "Run ALTER TABLE {} SET LOGGED",
        "Run CREATE UNIQUE INDEX",
    ),
    f"{_TESTS}unsent_columns.py::"
    "test_a_column_that_no_event_has_hides_that_values_are_in_wrong_columns": (
        "Add {} again as the table's last column",
    ),
    f"{_TESTS}enum_labels.py::test_what_events_have_of_a_table_with_generated_columns": (
        "Give the column the enum itself",
    ),
    f"{_TESTS}onboard.py::test_a_connector_that_was_left_standing_is_resumed": (
        "Run `tributary retry` for one of its tables, which resumes it",
        "To resume it, run `tributary retry`",
    ),
    f"{_TESTS}onboard.py::test_a_generation_that_is_built_does_not_outlive_its_slot": (
        "Run `tributary resume {}`, then `tributary run`",
        "Changes after the stored position are no longer in the binlog. Run `tributary run`",
        "Changes between the stored position and the slot are gone. Run `tributary run`",
        "Run `tributary run`, which marks",
    ),
    f"{_TESTS}onboard.py::"
    "test_a_connector_that_lost_changes_is_corrected_once_no_table_goes_on_from_them": (
        "Correct it in connect.connector. Then `tributary run`",
    ),
    f"{_TESTS}onboard.py::test_a_slot_is_made_anew_whose_publication_was_dropped": (
        "The publication is gone, and changes with it",
    ),
    f"{_TESTS}append_postgres.py::"
    "test_without_the_right_to_pause_the_choices_are_named_and_nothing_is_captured": (
        "Choose: 1. on the primary, in this database",
    ),
    f"{_TESTS}run_stops.py::test_a_topic_that_somebody_compacts_stops_its_table_until_it_is_not": (
        "Set cleanup.policy=delete on topic",
    ),
    f"{_TESTS}postgres_source_view.py::test_every_role_works_with_the_printed_grants_only": (
        "Grant role {} what it lacks",
        "Run as a superuser: ",
        "Run {}; on the primary, which replicates",
        "To replicate these tables, run as a superuser",
    ),
    f"{_TESTS}mysql.py::"
    "test_rights_are_proven_before_a_connector_starts_and_what_it_never_saw_takes_a_tier": (
        "Give such tables another tier",
        "Run GRANT {} ON {}",
    ),
    f"{_TESTS}mysql_catalog.py::"
    "test_rights_on_the_server_that_a_login_lacks_are_told_with_the_statement": (
        "GRANT {} ON *.* TO",
        "GRANT XA_RECOVER_ADMIN ON *.* TO",
    ),
    f"{_TESTS}as_string.py::test_a_new_column_of_such_a_type_waits_for_its_setting": (
        "Set columns.as: {",
    ),
    f"{_TESTS}mysql_nogtid.py::test_gtids_that_come_or_go_ask_for_copies": (
        "After a change of gtid_mode",
    ),
    f"{_TESTS}mysql_nogtid.py::test_a_gtid_mode_that_is_being_changed_is_an_error_until_it_is_on": (
        "Finish the change: SET GLOBAL gtid_mode",
    ),
    f"{_TESTS}capture.py::"
    "test_a_table_that_nobody_captures_can_stop_the_connector_which_is_told_at_once": (
        "Rename one of the columns",
    ),
    f"{_TESTS}refusals.py::test_a_table_fits_that_is_to_be_onboarded_instead_of_another": (
        "Onboard the root: `tributary onboard",
        "Onboard those tables by themselves",
    ),
    f"{_TESTS}postgres_source_view.py::"
    "test_identity_that_may_not_be_read_is_a_warning_not_a_failure": ("GRANT EXECUTE ON FUNCTION",),
    f"{_TESTS}stopped_by_value.py::test_a_capture_that_a_value_stopped_is_made_anew": (
        "The named column has a value",
    ),
    f"{_TESTS}misread_types.py::test_a_name_that_a_table_gets_later_asks_for_a_copy": (
        "Rename {}: then restart the connector",
    ),
    f"{_TESTS}mysql.py::test_a_capture_that_compressed_columns_stopped_is_made_anew": (
        "Store these columns without COMPRESSED",
    ),
    f"{_TESTS}mysql_redefined.py::"
    "test_a_connector_that_stopped_at_what_it_cannot_read_is_made_anew": (
        "A row has a date that no calendar has",
        "Its grammar lacks a clause",
    ),
    f"{_TESTS}mysql_redefined.py::"
    "test_a_definition_that_the_connector_skips_at_its_next_start_stops_its_tables": (
        "Let only one server write in each GTID domain",
    ),
    f"{_TESTS}mysql_redefined.py::"
    "test_a_unique_index_with_a_hidden_column_is_refused_and_replaced": (
        "Drop each such index (ALTER TABLE",
    ),
    f"{_TESTS}mysql_redefined.py::test_a_clause_in_an_executed_comment_stops_no_connector": (
        "Write the clause in a comment",
    ),
    f"{_TESTS}mysql_source.py::test_times_in_the_former_format_are_written_anew_as_it_says": (
        "Run ALTER TABLE {}.{} FORCE",
    ),
    f"{_TESTS}mysql.py::test_a_table_made_past_the_binlog_goes_on_in_a_tier_of_its_own": (
        "The connector cannot learn this definition any more",
    ),
    f"{_TESTS}mysql.py::"
    "test_a_transaction_with_a_tag_in_its_gtid_stops_its_table_until_it_is_copied_again": (
        "Let all sessions write to captured tables without tags",
    ),
    f"{_TESTS}remedies_copied.py::"
    "test_a_mode_of_deletes_that_was_changed_is_set_back_or_copied_for": (
        "Set it back, or copy the table again",
    ),
    f"{_TESTS}remedies_copied.py::test_a_table_whose_record_was_altered_begins_anew_as_it_says": (
        "The lake or the state store was altered",
        "The state store was altered: run",
    ),
    f"{_TESTS}remedies_copied.py::"
    "test_records_that_cannot_be_replayed_or_are_too_many_do_not_end_their_table": (
        "Find what writes such records",
        "Let a run look at it first",
        "To be exact, copy the table again",
    ),
    f"{_TESTS}remedies_copied.py::"
    "test_a_publication_that_leaves_changes_out_is_corrected_as_it_says": (
        "Correct that on the source. Run",
    ),
    f"{_TESTS}remedies_copied.py::"
    "test_settings_that_make_another_table_of_a_shard_are_set_back_or_followed": (
        "Set from, shard, shard_column and name back",
    ),
    f"{_TESTS}remedies_copied.py::test_a_shared_table_that_is_gone_is_made_anew_as_it_says": (
        "Restore it; or ",
    ),
    f"{_TESTS}remedies_copied.py::"
    "test_the_generation_that_readers_are_sent_to_goes_after_the_next_one": (
        "Run `tributary resync {}` first, which sends readers",
    ),
    f"{_TESTS}remedies_copied.py::test_a_pointer_that_something_else_wrote_is_published_anew": (
        "Another program or another version of Tributary wrote it",
    ),
    f"{_TESTS}remedies_copied.py::"
    "test_values_and_rows_that_a_copy_cannot_read_are_put_right_as_it_says": (
        "Give credentials.snapshot what `tributary check`",
        "Correct the value on the source; or, if the",
    ),
    f"{_TESTS}remedies_early.py::test_names_that_two_tables_would_share_are_parted_as_it_says": (
        "Give one of them another tier",
        "Set name of {}",
    ),
    f"{_TESTS}remedies_early.py::"
    "test_a_source_that_left_the_settings_is_put_back_for_its_tables_to_leave": (
        "Put sources.{} back",
    ),
    f"{_TESTS}remedies_early.py::"
    "test_a_table_that_is_gone_and_a_topic_that_does_not_fit_leave_the_checks": (
        "Run `tributary offboard {}` if the table is gone for good",
        "To start again, run `tributary offboard {}",
    ),
    f"{_TESTS}remedies_early.py::"
    "test_a_slot_that_something_else_reads_goes_after_its_reader_as_it_says": (
        "If this reader is the connector of this capture, delete it",
    ),
    f"{_TESTS}renamed_tables.py::"
    "test_a_table_that_no_record_has_is_named_with_the_statement_that_removes_it": (
        "If it was onboarded under this name, and the state store was restored",
    ),
    f"{_TESTS}one_lake.py::test_a_second_installation_leaves_the_folder_of_the_first_as_it_says": (
        "Set another lake.url for this installation.",
        "Run `tributary offboard {}` in one of the two, set another lake.url",
        "Remove it there. If that installation is gone for good",
    ),
    f"{_TESTS}second_reader.py::"
    "test_the_connector_of_another_installation_is_left_until_it_is_taken_over": (
        "Check state.url. If another installation uses the connector, leave it",
    ),
    f"{_TESTS}second_reader.py::test_the_slot_of_another_installation_is_left_as_it_says": (
        "If that reader is not yours, leave it, and give this installation names",
    ),
    f"{_TESTS}second_reader.py::test_a_slot_of_another_database_of_the_server_is_left_as_it_says": (
        "If that slot is not yours, leave it, and give this installation names",
    ),
    f"{_TESTS}second_reader.py::test_an_idle_slot_of_another_tool_is_left_as_it_says": (
        "If that slot is not yours, leave it, and set another slot",
    ),
    f"{_TESTS}second_reader.py::test_the_publication_of_another_installation_is_left_as_it_says": (
        "If that publication is not yours, leave it, and give this installation names",
    ),
    f"{_TESTS}second_reader.py::test_a_slot_that_a_killed_command_has_left_is_named": (
        "If another installation uses the slot, or if the state store has lost tables, leave",
    ),
    f"{_TESTS}second_reader.py::test_topics_of_another_environment_are_left_as_it_says": (
        "If those heartbeats are not of yours, give this installation topics of its own",
    ),
    f"{_TESTS}second_reader.py::"
    "test_another_environment_that_came_later_is_named_until_it_writes_elsewhere": (
        "Give the installation that came later topics of its own: delete its connector",
    ),
    f"{_TESTS}second_reader.py::test_the_connector_of_another_environment_is_left_as_it_says": (
        "If that connector is not yours, leave it, and give this installation names",
    ),
    f"{_TESTS}second_reader.py::"
    "test_what_another_reader_took_is_seen_before_the_connector_goes_on": (
        "Another reader has the slot",
        "Run `tributary run`, which marks the tables of this source and tier, then `tributary"
        " bootstrap` for them. Restart the connector only after",
    ),
    f"{_TESTS}remedies_early.py::test_a_topic_that_was_deleted_is_made_anew_as_it_says": (
        "Run `tributary onboard` for its table, which creates the topic",
    ),
    "tests/chaos/test_crash_points.py::"
    "test_a_copy_that_was_cut_short_is_kept_and_completed_as_it_says": (
        "Run `tributary bootstrap {}`, which completes it",
    ),
    "tests/spark/test_lake_write.py::test_a_second_bulk_insert_into_buckets_is_refused": (
        "Set index: bloom",
    ),
    f"{_TESTS}remedies_early.py::"
    "test_settings_of_topics_and_connectors_fit_after_what_the_checks_say": (
        "Raise kafka.topic.retention_ms",
        "Raise retention.ms of topic {}, or lower",
        "Tributary changes only sizes of a connector in use",
    ),
    f"{_TESTS}check.py::test_rows_that_do_not_fit_into_a_message_are_a_warning": (
        "Raise max.message.bytes",
    ),
    f"{_TESTS}postgres_source_view.py::"
    "test_a_replay_that_something_pauses_again_goes_on_after_the_statement_that_is_named": (
        "Run SELECT pg_wal_replay_resume()",
    ),
    f"{_TESTS}mysql_second_reader.py::"
    "test_the_connector_that_another_one_ends_says_how_both_go_on": (
        "Another client reads the binlog of the primary",
    ),
    f"{_TESTS}mysql.py::test_a_cascade_is_in_the_binlog_or_the_table_is_refused": (
        "Correct that on the source, or offboard",
    ),
    f"{_TESTS}mysql_catalog.py::test_a_login_that_lacks_a_right_goes_on_once_it_is_granted": (
        "Grant {} what it lacks: docs/mysql.md",
    ),
    f"{_TESTS}mysql_reader.py::test_spark_reads_the_chunks_under_views_behind_the_fence": (
        "Give credentials.snapshot SELECT",
    ),
    f"{_TESTS}mysql_reader.py::test_a_replica_that_differs_in_silence_is_refused": (
        "Recreate the replica",
        "Use a replica without filters",
    ),
    f"{_TESTS}remedies_mysql.py::"
    "test_tables_that_a_login_cannot_see_are_seen_after_the_statement_that_is_told": (
        "Run {}; or grant SELECT",
    ),
    f"{_TESTS}shards.py::test_a_shard_that_fails_is_named_and_holds_back_only_itself": (
        "Give the column the same type",
    ),
    f"{_TESTS}mysql_catalog.py::"
    "test_grants_are_enough_and_what_is_wrong_with_the_binlog_is_named": ("GRANT PROCESS",),
    f"{_TESTS}mysql_zero_keys.py::test_a_zero_date_in_a_key_is_refused_or_stops_the_table": (
        "Give such rows real dates",
    ),
    f"{_TESTS}mysql_exact_view.py::test_without_the_right_the_statement_that_grants_it_is_named": (
        "On the primary: GRANT",
    ),
    f"{_TESTS}mysql_source.py::test_settings_are_right_after_the_statement_that_is_told": (
        "SET GLOBAL",
    ),
    f"{_TESTS}mysql_source.py::test_refused_tables_fit_after_what_they_are_told": (
        "Choose: 1. ALTER TABLE",
        "Choose: 1. give it a primary key",
        "Run ALTER TABLE {}.{} ENGINE = InnoDB",
    ),
    f"{_TESTS}postgres_source_view.py::test_a_paused_replica_is_a_bounded_wait_with_the_lag": (
        "Resume it with SELECT",
        "Resume replay, or wait",
    ),
    f"{_TESTS}append.py::test_a_replay_that_someone_else_paused_is_left_alone": (
        "Resume it on the replica",
    ),
}
"""By test: the beginnings of the remedies that the test executes.

A remedy may consist of commands of the product, settings, or statements on a server.
"""
