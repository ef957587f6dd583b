"""Faults that a review of the server found, by their numbers there, and the tests that show them mended.

test_fuzz.py looks for others of their kinds.
"""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FAULTS = {
    1: (
        "one allowed request takes gigabytes and stops everybody",
        "test_limits.py::test_a_large_answer_takes_little_memory_and_little_of_the_loop_at_a_time",
        "test_limits.py::test_what_would_have_to_wait_too_long_is_refused_and_names_the_setting",
        "test_limits.py::test_texts_of_a_batch_wait_for_those_before_them_to_be_read",
    ),
    2: (
        "any web page can use the server of the machine it is read on",
        "test_gate.py::test_a_browser_s_page_of_another_site_neither_speaks_nor_hears",
        "test_gate.py::test_a_server_of_this_machine_answers_to_its_own_names",
        "test_gate.py::test_pages_of_other_sites_are_refused_unless_they_are_named",
        "test_gate.py::test_a_websocket_of_another_site_is_refused_unless_it_is_named",
        "test_gate.py::test_what_a_page_can_send_without_asking_is_no_request_for_speech",
    ),
    3: (
        "a recording in which nothing is heard is a 500",
        "../common/test_recognition.py::test_words_have_times_and_scores",
        "test_transcriptions.py::test_nothing_heard_is_an_empty_text_in_every_form",
    ),
    4: (
        "silent connections are kept for ever; where files run out the service is gone and the log explodes",
        "test_connections.py::test_who_sends_no_request_is_not_waited_for",
        "test_live.py::test_who_is_silent_and_hears_nothing_is_not_kept",
        "test_connections.py::test_a_new_connection_takes_the_place_of_the_one_that_is_idle_longest",
        "test_connections.py::test_more_connections_than_files_and_a_log_that_nobody_reads_stop_nobody",
        "test_connections.py::test_a_library_says_the_same_seldom_and_the_server_as_often_as_it_likes",
    ),
    5: (
        "listeners run dry between the first and the second chunk when several begin together",
        "test_scheduler.py::test_nobody_runs_dry_when_several_begin_together_though_the_machine_is_busy",
    ),
    6: (
        "texts are analysed whole, first come, first served",
        "test_scheduler.py::test_a_sentence_behind_thirty_book_pages_waits_at_most_three_times_as_long_as_alone",
    ),
    7: (
        "transcriptions with stream=True give nothing, without an error",
        "test_transcriptions.py::test_openai_s_client_gets_every_form",
    ),
    8: (
        "a large message of the WebSocket is cut on the event loop",
        "test_live.py::test_text_is_split_beside_the_event_loop",
    ),
    9: ("a binary message is a fault", "test_live.py::test_errors_leave_the_socket_open"),
    10: (
        "a sentence that finds no room is lost in the middle of a text",
        "test_live.py::test_sentences_wait_where_others_take_all_the_room",
    ),
    11: ("a session takes a voice that is not there", "test_live.py::test_errors_leave_the_socket_open"),
    12: (
        "listeners who pause count as underruns",
        "test_scheduler.py::test_a_pause_of_the_listener_is_no_underrun",
    ),
    13: (
        "nobody can say who asked",
        "test_callers.py::test_a_key_has_so_many_requests_and_characters_a_minute",
    ),
    14: (
        "the HTTP parser changes with what is installed; two lengths of a body have two answers",
        "test_connections.py::test_headers_have_a_limit_whatever_parsers_are_installed",
        "test_gate.py::test_a_body_with_two_lengths_has_one_answer_and_the_connection_ends",
    ),
    15: (
        "a reader of the log who stops reading stops the server",
        "test_connections.py::test_more_connections_than_files_and_a_log_that_nobody_reads_stop_nobody",
        "test_connections.py::test_lines_that_nobody_reads_are_dropped_and_counted",
    ),
    16: (
        "/docs loads a page of others and knows no key",
        "test_api.py::test_the_api_describes_its_keys_and_errors",
    ),
    17: ("HEAD is 405", "test_api.py::test_head_is_answered_as_get_without_a_body"),
    18: (
        "decoders write between the lines of JSON; a long recording is whole in memory",
        "test_transcriptions.py::test_what_decoders_complain_of_is_not_in_the_log",
        "test_transcriptions.py::test_a_long_recording_is_never_whole_in_memory",
    ),
    19: (
        "null, a byte order mark and a slash at the end are refused",
        "test_api.py::test_what_clients_write_besides_is_no_fault",
    ),
}


@pytest.mark.parametrize("number", FAULTS)
def test_each_fault_has_its_tests(number):
    _, *tests = FAULTS[number]
    for name in tests:
        file, _, function = name.partition("::")
        assert re.search(rf"^def {function}\(", (HERE / file).read_text(), re.M), name
