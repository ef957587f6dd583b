"""OpenTelemetry's traces of real requests: what spans there are, whose they are, and what is not in them."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from melforge.common.serve.traces import Tracing, tracing_by
from tests.conftest import lacks
from tests.serve.conftest import SPEECH, own_pcm, running, serving, speech, wait_for
from tests.serve.test_api import require_error

pytestmark = [pytest.mark.serve, pytest.mark.otel]
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
TEXT = "Seventeen purple elephants. Seventeen more."


@pytest.fixture
def traced(monkeypatch):
    """A server with a key, and what it has exported."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("melforge.common.serve.service.tracing_by", lambda: Tracing(provider))
    with running((b"one",), riva_port=None if lacks("riva") else 0) as server:
        yield server, exporter


def requests(exporter, count):
    """The spans of so many requests, each with its steps."""
    found = lambda: [span for span in exporter.get_finished_spans() if span.kind.name == "SERVER"]  # noqa: E731
    wait_for(lambda: len(found()) == count, "the requests' spans")
    steps = [span for span in exporter.get_finished_spans() if span.kind.name != "SERVER"]
    return [
        (span, [step for step in steps if step.parent.span_id == span.context.span_id]) for span in found()
    ]


def test_a_request_has_spans_of_its_steps_in_the_trace_of_its_caller(traced, caplog):
    caplog.set_level("INFO", "melforge.serve")
    server, exporter = traced
    with server.client("one") as client:
        assert client.post(SPEECH, json=own_pcm(TEXT), headers=TRACEPARENT).status_code == 200
        require_error(client.post(SPEECH, json=speech(TEXT, voice="nobody")), 400)
        assert client.get("/health").status_code == 200
    (span, steps), (other, none) = requests(exporter, 2)
    assert (format(span.context.trace_id, "032x"), format(span.parent.span_id, "016x")) == (TRACE, PARENT)
    assert span.name == f"POST {SPEECH}" and span.status.is_unset
    known = {
        "http.request.method": "POST",
        "http.route": SPEECH,
        "http.response.status_code": 200,
        "url.scheme": "http",
        "client.address": "127.0.0.1",
        "enduser.id": "owner 1",
        "gen_ai.request.model": "fastpitch-hifigan",
        "melforge.voice": "hazel",
        "melforge.characters": len(TEXT),
    }
    assert known.items() <= dict(span.attributes).items() and span.attributes["melforge.audio_seconds"] > 1
    names = [step.name for step in steps]
    assert names.count("text") == 1 and names.count("acoustic") == 2
    assert names.count("vocoder") >= 2 and names.count("encode") >= 2
    assert all(step.context.trace_id == span.context.trace_id for step in steps)
    assert all(step.start_time <= step.end_time <= span.end_time for step in steps)
    assert all(step.start_time >= span.start_time for step in steps)
    assert other.attributes["http.response.status_code"] == 400 and not none and other.parent is None
    lines = [record.fields["trace_id"] for record in caplog.records if record.message == "request"]
    assert lines == [TRACE, format(other.context.trace_id, "032x")]
    exported = " ".join(span.to_json() for span in exporter.get_finished_spans())
    assert "elephants" not in exported.lower() and "one" not in exported.replace("None", "").split()


def test_a_trace_that_is_not_to_be_sent_has_no_steps(traced):
    server, exporter = traced
    with server.client("one") as client:
        unsampled = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
        assert client.post(SPEECH, json=speech(), headers=unsampled).status_code == 200
        assert client.get("/v1/models").status_code == 200
    ((span, steps),) = requests(exporter, 1)
    assert span.name == "GET /v1/models" and not steps and len(exporter.get_finished_spans()) == 1


@pytest.mark.riva
def test_a_call_of_riva_s_has_them_too(traced):
    import riva.client

    server, exporter = traced
    auth = riva.client.Auth(uri=f"127.0.0.1:{server.riva}", metadata_args=[["authorization", "Bearer one"]])
    riva.client.SpeechSynthesisService(auth).synthesize(TEXT)
    ((span, steps),) = requests(exporter, 1)
    assert span.name == "nvidia.riva.tts.RivaSpeechSynthesis/Synthesize"
    assert span.attributes["rpc.grpc.status_code"] == 0 and span.attributes["enduser.id"] == "owner 1"
    assert {"text", "acoustic", "vocoder", "encode"} == {step.name for step in steps}


def test_the_log_has_the_trace_where_none_is_sent(server, caplog):
    caplog.set_level("INFO", "melforge.serve")
    with server.client() as client:
        for headers in (TRACEPARENT, {"traceparent": "00-4bf9-1-01"}, {}):
            assert client.get("/v1/models", headers=headers).status_code == 200
    lines = lambda: [record.fields for record in caplog.records if record.message == "request"]  # noqa: E731
    wait_for(lambda: len(lines()) == 3, "the lines")
    assert [line.get("trace_id") for line in lines()] == [TRACE, None, None]


def test_traces_are_asked_for_by_opentelemetry_s_variables(caplog, monkeypatch):
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    for environment in (
        {},
        {**endpoint, "OTEL_TRACES_EXPORTER": "none"},
        {**endpoint, "OTEL_SDK_DISABLED": "true"},
    ):
        assert tracing_by(environment) is None
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    assert tracing_by(endpoint) is None
    (record,) = caplog.records
    assert record.message == "traces are not sent" and "[otel]" in record.fields["advice"]


@pytest.mark.otlp
def test_a_process_sends_its_traces_by_otlp():
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    bodies = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words):
            pass

    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, args=(0.05,), daemon=True).start()
    try:
        endpoint = f"http://127.0.0.1:{collector.server_address[1]}"
        with serving(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as server:
            import httpx

            assert httpx.post(server.url + SPEECH, json=speech(), timeout=200).status_code == 200
            server.process.terminate()
            lines = [json.loads(line) for line in server.process.stderr]
            assert server.process.wait(200) == 0 and lines[-1]["event"] == "stopped"
    finally:
        collector.shutdown()
        collector.server_close()
    resources = [
        one
        for path, body in bodies
        for one in ExportTraceServiceRequest.FromString(body).resource_spans
        if path == "/v1/traces"
    ]
    about = {pair.key: pair.value.string_value for one in resources for pair in one.resource.attributes}
    names = {span.name for one in resources for scope in one.scope_spans for span in scope.spans}
    assert about["service.name"] == "melforge"
    assert {f"POST {SPEECH}", "text", "acoustic", "vocoder", "encode"} <= names
