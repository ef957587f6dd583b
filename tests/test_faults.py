"""Faults that reviews found (of the server, of files, of Triton, tables and Ray), by their numbers there, and
the tests that show them mended.

The two test_fuzz.py look for others of their kinds.
"""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SERVER = {
    1: (
        "one allowed request takes gigabytes and stops everybody",
        "serve/test_limits.py::test_a_large_answer_takes_little_memory_and_little_of_the_loop_at_a_time",
        "serve/test_limits.py::test_what_would_have_to_wait_too_long_is_refused_and_names_the_setting",
        "serve/test_limits.py::test_texts_of_a_batch_wait_for_those_before_them_to_be_read",
    ),
    2: (
        "any web page can use the server of the machine it is read on",
        "serve/test_gate.py::test_a_browser_s_page_of_another_site_neither_speaks_nor_hears",
        "serve/test_gate.py::test_a_server_of_this_machine_answers_to_its_own_names",
        "serve/test_gate.py::test_pages_of_other_sites_are_refused_unless_they_are_named",
        "serve/test_gate.py::test_a_websocket_of_another_site_is_refused_unless_it_is_named",
        "serve/test_gate.py::test_what_a_page_can_send_without_asking_is_no_request_for_speech",
    ),
    3: (
        "a recording in which nothing is heard is a 500",
        "common/test_recognition.py::test_words_have_times_and_scores",
        "serve/test_transcriptions.py::test_nothing_heard_is_an_empty_text_in_every_form",
    ),
    4: (
        "silent connections are kept for ever; where files run out the service is gone and the log explodes",
        "serve/test_connections.py::test_who_sends_no_request_is_not_waited_for",
        "serve/test_live.py::test_who_is_silent_and_hears_nothing_is_not_kept",
        "serve/test_connections.py::test_a_new_connection_takes_the_place_of_the_one_that_is_idle_longest",
        "serve/test_connections.py::test_more_connections_than_files_and_a_log_that_nobody_reads_stop_nobody",
        "serve/test_connections.py::test_a_library_says_the_same_seldom_and_the_server_as_often_as_it_likes",
    ),
    5: (
        "listeners run dry between the first and the second chunk when several begin together",
        "serve/test_scheduler.py::test_nobody_runs_dry_when_several_begin_together_though_the_machine_is_busy",
    ),
    6: (
        "texts are analysed whole, first come, first served",
        "serve/test_scheduler.py::test_a_sentence_behind_thirty_book_pages_waits_at_most_three_times_as_long_as_alone",
    ),
    7: (
        "transcriptions with stream=True give nothing, without an error",
        "serve/test_transcriptions.py::test_openai_s_client_gets_every_form",
    ),
    8: (
        "a large message of the WebSocket is cut on the event loop",
        "serve/test_live.py::test_text_is_split_beside_the_event_loop",
    ),
    9: ("a binary message is a fault", "serve/test_live.py::test_errors_leave_the_socket_open"),
    10: (
        "a sentence that finds no room is lost in the middle of a text",
        "serve/test_live.py::test_sentences_wait_where_others_take_all_the_room",
    ),
    11: (
        "a session takes a voice that is not there",
        "serve/test_live.py::test_errors_leave_the_socket_open",
    ),
    12: (
        "listeners who pause count as underruns",
        "serve/test_scheduler.py::test_a_pause_of_the_listener_is_no_underrun",
    ),
    13: (
        "nobody can say who asked",
        "serve/test_callers.py::test_a_key_has_so_many_requests_and_characters_a_minute",
    ),
    14: (
        "the HTTP parser changes with what is installed; two lengths of a body have two answers",
        "serve/test_connections.py::test_headers_have_a_limit_whatever_parsers_are_installed",
        "serve/test_gate.py::test_a_body_with_two_lengths_has_one_answer_and_the_connection_ends",
    ),
    15: (
        "a reader of the log who stops reading stops the server",
        "serve/test_connections.py::test_more_connections_than_files_and_a_log_that_nobody_reads_stop_nobody",
        "serve/test_connections.py::test_lines_that_nobody_reads_are_dropped_and_counted",
    ),
    16: (
        "/docs loads a page of others and knows no key",
        "serve/test_api.py::test_the_api_describes_its_keys_and_errors",
    ),
    17: ("HEAD is 405", "serve/test_api.py::test_head_is_answered_as_get_without_a_body"),
    18: (
        "decoders write between the lines of JSON; a long recording is whole in memory",
        "serve/test_transcriptions.py::test_what_decoders_complain_of_is_not_in_the_log",
        "serve/test_transcriptions.py::test_a_long_recording_is_never_whole_in_memory",
    ),
    19: (
        "null, a byte order mark and a slash at the end are refused",
        "serve/test_api.py::test_what_clients_write_besides_is_no_fault",
    ),
}
LAYOUTS = "common/corpus/test_layouts.py::test_a_data_set_is_read_or_refused_in_a_sentence"
FILES = {
    "1": (
        "a recording without a letter loses the transcripts of its folder",
        "common/test_recognition.py::test_words_have_times_and_scores",
        "common/test_recognition.py::test_files_that_cannot_be_read_are_named_and_the_rest_is_heard",
    ),
    "16": (
        "a checkpoint of a giant tensor hangs for hours",
        "common/test_checkpoint.py::test_damaged_weights_are_refused",
    ),
    "16b": (
        "published frontends break on long blank texts",
        "common/text/published/test_frontends.py::test_nothing_to_say_is_no_utterance",
    ),
    "17": (
        "a graph's notes that are none are a fault",
        "common/test_voices.py::test_damaged_files_are_named",
    ),
    "18": (
        "sparse, empty and huge tensors are a fault",
        "common/test_checkpoint.py::test_damaged_weights_are_refused",
    ),
    "19": (
        "weights that may not be read are called missing",
        "common/test_voices.py::test_weights_that_may_not_be_read_are_called_so",
    ),
    "20": (
        "a config that contradicts its graphs is not seen",
        "common/test_voices.py::test_a_config_that_contradicts_its_graphs_is_refused",
        "common/test_voices.py::test_mistakes_in_voice_yaml_are_named",
    ),
    "F2": ("paths of tables are looked up as names", LAYOUTS),
    "F5": (
        "numpy's scalars beside the weights are called code",
        "common/test_checkpoint.py::test_plain_data_beside_the_weights_passes",
    ),
    "F6": (
        "names that torch.compile changed are not known",
        "common/test_checkpoint.py::test_wrapped_half_precision_and_old_files_load",
    ),
    "F8": ("names differ in case and in the form of their letters", LAYOUTS),
    "F9": (
        "the last column is taken for texts",
        LAYOUTS,
        "common/corpus/test_layouts.py::test_a_column_that_is_not_taken_for_texts_is_told",
    ),
    "F10": ("a heading becomes a line", LAYOUTS),
    "F11": (
        "what is no checkpoint is called incomplete",
        "common/test_checkpoint.py::test_a_file_of_another_kind_is_called_what_it_is",
    ),
    "F12": ("HEAD is 405", "serve/test_api.py::test_head_is_answered_as_get_without_a_body"),
    "F13": ("a config with a byte order mark is refused", "hifigan/test_checkpoint.py::test_config_beside"),
    "F14": (
        "a model of other symbols than its frontend's speaks garbage",
        "common/test_voices.py::"
        "test_a_model_of_other_symbols_than_its_frontend_has_says_so_until_they_are_stated",
    ),
    "F15": (
        "channels that cancel each other are silence",
        "common/test_audio.py::test_channels_that_cancel_each_other_give_the_loudest",
    ),
    "F16": (
        "a wav whose header counts no samples is silence",
        "common/test_audio.py::test_a_wav_whose_header_counts_no_samples_is_read_to_its_end",
    ),
    "F18": (
        "a manifest is read as sound",
        "common/test_recognition.py::test_manifests_give_files_and_references",
    ),
    "F19": (
        "a manifest's backslashes are part of a name",
        "common/test_recognition.py::test_manifests_give_files_and_references",
    ),
    "F20": ("the second --subtitles replaces the first", "scripts/test_infer.py::test_subtitles"),
    "F21": (
        "words that sound the same are heard as others",
        "common/test_listener.py::test_what_sounds_the_same_is_no_error",
    ),
}
TRITON, RAY, BULK = "triton/test_server.py::", "cluster/test_server_on_ray.py::", "bulk/test_bulk.py::"
READ = f"{BULK}test_what_cannot_be_read_is_a_sentence"
KILLED = f"{TRITON}test_what_is_killed_again_and_again_leaves_whole_answers_or_errors"
FLOOD = f"{TRITON}test_a_flood_is_refused_as_it_comes_and_the_server_is_alive_meanwhile"
DEAD = f"{TRITON}test_a_dead_model_ends_what_waits_for_it_and_the_server_starts_again"
POD = "examples/test_triton_deployment.py::test_a_pod_lives_while_it_speaks"
STATUSES = f"{TRITON}test_statuses_of_generate_are_those_of_the_page"
CLUSTER = {
    "A1": (
        "what goes to an object store is written into a folder here",
        "bulk/test_remote.py::test_a_table_is_read_from_a_store_and_spoken_into_it",
        "bulk/test_remote.py::test_a_repository_of_triton_is_written_into_a_store",
        "bulk/test_remote.py::test_an_address_is_no_place_of_this_machine",
        "scripts/test_voice_commands.py::test_a_voice_is_made_in_a_store_and_an_ear_is_not",
    ),
    "A2": (
        "Triton takes any number of texts, and speaks those of clients who left",
        FLOOD,
        f"{TRITON}test_streams_beyond_the_most_are_refused",
        "triton/test_repository.py::test_options_say_how_the_models_run",
        "triton/test_backend.py::test_what_a_client_that_left_has_asked_for_is_not_made",
    ),
    "A2b": ("the probe waits behind the texts, so that a busy server is ended", FLOOD, POD),
    "A3": ("a dead model of streams is never noticed", DEAD, KILLED),
    "A4": (
        "nothing probes models that hear",
        "triton/test_recogniser.py::test_nvidia_s_own_client_gets_what_it_asks_for",
    ),
    "A5": ("a run that goes on mixes two voices", f"{BULK}test_a_run_knows_its_weights_lexicons_and_version"),
    "B1": ("a pod with a dead model gets texts", DEAD, KILLED, POD),
    "B2": ("/generate calls the server's faults 400", STATUSES),
    "B3": ("an id too long for a file ends the run in the middle", READ),
    "B4": ("half characters are a fault of ours", READ),
    "B5": (
        "one bad row of many is named",
        READ,
        f"{BULK}test_bad_rows_are_listed_where_they_are_to_be_skipped",
    ),
    "B6": (
        "a long cell takes gigabytes",
        READ,
        f"{BULK}test_a_long_text_is_spoken_in_pieces_to_the_same_samples",
    ),
    "B7": (
        "a cluster that starts slowly is a fault of ours",
        "cluster/test_ray_app.py::test_a_cluster_that_does_not_begin_is_no_fault_of_ours",
    ),
    "B8": (
        "killed workers leave half shards",
        f"{BULK}test_a_run_that_was_killed_goes_on_to_the_same_bytes",
        "cluster/test_bulk_on_ray.py::test_a_run_on_ray_that_is_killed_twice_has_the_bytes_of_one_without_ray",
    ),
    "B9": ("a pod has less time to end than its texts", POD),
    "B10": ("models outlive their server", f"{TRITON}test_a_server_that_is_told_to_end_leaves_nothing"),
    "B11": ("/generate calls malformed JSON 500", STATUSES),
    "B12": ("ids that differ in case or form overwrite each other", READ),
    "B13": (
        "a full disk has no path and no way on",
        f"{BULK}test_where_there_is_no_room_the_run_says_where_and_how_it_goes_on",
    ),
}
FAULTS = {f"server {number}": fault for number, fault in SERVER.items()} | {
    f"{name} {number}": fault
    for name, faults in (("files", FILES), ("cluster", CLUSTER))
    for number, fault in faults.items()
}


@pytest.mark.parametrize("number", FAULTS)
def test_each_fault_has_its_tests(number):
    _, *tests = FAULTS[number]
    for name in tests:
        file, _, function = name.partition("::")
        assert re.search(rf"^def {function}\(", (HERE / file).read_text(), re.M), name
