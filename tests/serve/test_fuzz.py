"""Whatever is sent, the service answers in its own words and never fails inside."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from ibcl.serve import Settings, create_app


def mappings(keys, values):
    return st.dictionaries(keys | st.text(max_size=8), values, max_size=4)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | mappings(st.nothing(), inner),
    max_leaves=15,
)
COLUMNS = st.sampled_from(["year", "minutes", "mood"])
TASKS = st.sampled_from(["sci-fi", "horror"])
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "rows": st.lists(mappings(COLUMNS, JSON), max_size=3) | JSON,
        "inputs": JSON,
        "preference": mappings(TASKS, JSON) | JSON,
        "user": JSON,
        "labels": JSON,
        "clicked": JSON,
        "forgetting": JSON,
        "version": JSON,
        "format": JSON,
    },
)
ROUTES = [
    ("POST", "/v1/predict"),
    ("PUT", "/v1/users/ann/preference"),
    ("POST", "/v1/users/ann/infer"),
    ("POST", "/v1/infer"),
    ("POST", "/v1/model"),
    ("POST", "/v1/explorer/measure"),
]
QUICK = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate],
)

THOROUGH = settings(QUICK, max_examples=5, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(("method", "path"), ROUTES)
@QUICK
@given(body=BODIES | JSON)
def test_any_json_is_answered_without_failing_inside(reader, method, path, body):
    content = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    answer = reader.request(method, path, content=content, headers=headers)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert set(answer.json()) == {"error"}


@pytest.mark.parametrize(("method", "path"), ROUTES)
@QUICK
@given(content=st.binary(max_size=60))
def test_any_bytes_are_answered_without_failing_inside(reader, method, path, content):
    headers = {"Content-Type": "application/json"}
    assert reader.request(method, path, content=content, headers=headers).status_code < 500


def film(values, preference=b'{"sci-fi":1}'):
    return b'{"rows":[' + values + b'],"preference":' + preference + b"}"


PLAIN = b'{"year":1,"minutes":1,"mood":"x"}'
TRAPS = {
    "a number of 5000 digits": film(b'{"year":' + b"9" * 5000 + b',"minutes":1,"mood":"x"}'),
    "no numbers": film(b'{"year":NaN,"minutes":Infinity,"mood":"x"}'),
    "numbers without end": film(b'{"year":1e400,"minutes":-1e400,"mood":"x"}'),
    "large numbers": film(b'{"year":1e308,"minutes":-1e308,"mood":"x"}'),
    "minus nothing": film(b'{"year":-0,"minutes":-0.0,"mood":"x"}'),
    "half a character as a name": film(b'{"\\ud800":1}', b'{"\\ud800":1}'),
    "half a character as a value": film(b'{"year":1,"minutes":1,"mood":"\\ud800"}'),
    "a character of zero": film(b'{"year":1,"minutes":1,"mood":"\\u0000"}'),
    "kinds mixed up": film(b'{"year":true,"minutes":"1","mood":3}'),
    "the same name twice": film(b'{"year":1,"year":"x","minutes":1,"mood":"x","mood":null}'),
    "the same task twice": film(PLAIN, b'{"sci-fi":1,"sci-fi":1}'),
    "a weight that is none": film(PLAIN, b'{"sci-fi":NaN}'),
    "a weight of 5000 digits": film(PLAIN, b'{"sci-fi":1' + b"0" * 5000 + b"}"),
    "deep lists": b'{"rows":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "deep mappings": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "half a body": b'{"rows":[{"year":1',
    "another encoding": film(PLAIN).decode().encode("utf-16"),
    "no text": b"\xff\xfe",
    "nothing": b"",
}


@pytest.mark.parametrize("content", TRAPS.values(), ids=TRAPS)
def test_known_traps(reader, content):
    for method, path in ROUTES:
        answer = reader.request(
            method, path, content=content, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code < 500
        if answer.status_code >= 400:
            assert set(answer.json()) == {"error"}


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "json", None])
def test_a_page_elsewhere_cannot_send_what_a_browser_lets_through(reader, kind):
    headers = {} if kind is None else {"Content-Type": kind}
    for method, path in ROUTES:
        answer = reader.request(method, path, content=film(PLAIN), headers=headers)
        assert answer.status_code == 403
        assert set(answer.json()) == {"error"}


@pytest.mark.parametrize("user", ["%ED%A0%80", "%00", "%2e%2e%2fann", "a" * 129, "ann%0d%0a"])
def test_names_that_are_none(reader, user):
    answer = reader.get(f"/v1/users/{user}/preference")
    assert answer.status_code in (404, 422)
    assert set(answer.json()) == {"error"}


@pytest.mark.slow
def test_the_openapi_document_holds(learnt, tmp_path):
    """Schemathesis sends what the document allows and what it does not, and checks the answers."""
    app = create_app(Settings(learnt, data=tmp_path))
    document = schemathesis.openapi.from_asgi("/openapi.json", app)
    checked = set()
    for result in document.get_all_operations():
        operation = result.ok()
        for mode in schemathesis.GenerationMode:

            @THOROUGH
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case):
                answer = case.call()
                # The document does not know the columns of the knowledge base.
                lacking = answer.status_code == 422 and "lacks the column" in answer.text
                left_out = [schemathesis.checks.positive_data_acceptance] if lacking else []
                case.validate_response(answer, excluded_checks=left_out)

            # Some operations take nothing that could be wrong.
            with suppress(Unsatisfiable):
                check()
        checked.add(operation.label)
    app.state.service.close()
    assert len(checked) >= 18


def test_the_document_names_the_routes_that_clients_rely_on(reader):
    paths = reader.get("/openapi.json").json()["paths"]
    assert {"get", "put", "delete"} <= paths["/v1/users/{user}/preference"].keys()
    assert {
        "/health",
        "/ready",
        "/v1/tasks",
        "/v1/predict",
        "/v1/users/{user}/infer",
    } <= paths.keys()
