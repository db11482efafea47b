"""Where would it run: the question in the address, ranked places out, and what each demand costs."""

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from orchestrator.models import Task
from orchestrator.services.advising import advise

pytestmark = pytest.mark.django_db

H100 = "gpus_min=2&walltime_min=2%3A00%3A00&accelerator_types=h100"


def test_the_address_alone_asks_and_nothing_is_kept(federation: User, browser: Client) -> None:
    page = browser.get(f"/where/?{H100}").text

    assert re.search(r'id="verdict-head">.*?Delta', page)
    assert 'value="h100"' in page
    assert "Another type of GPU." in page
    assert Task.objects.count() == 0


def test_what_a_wait_rests_on_is_said_beside_it(federation: User, browser: Client) -> None:
    page = browser.get(f"/where/?{H100}&objective=risk_averse").text

    kinds = {"free, nobody ahead", "free, others ahead", "when others end", "queue hidden"}
    assert any(f" · {kind}</span>" in page for kind in kinds)
    assert '<p class="small quiet">Least risk of a late end</p><h2 id="verdict-head">' in page


def test_what_would_help_leads_to_the_question_with_the_change_made(
    federation: User, browser: Client
) -> None:
    page = browser.get(f"/where/?{H100}").text

    (query,) = re.findall(r'href="/where/\?([^"]*)">Take any type of GPU, not only h100<', page)
    changed = parse_qs(unescape(query))
    assert changed == {"gpus_min": ["2"], "walltime_min": ["2:00:00"]}
    assert re.search(r'id="verdict-head">.*?Anvil', browser.get(f"/where/?{unescape(query)}").text)


def test_a_relaxation_is_told_only_when_placement_confirms_a_gain(federation: User) -> None:
    asked = {"gpus": 2, "walltime_s": 7200, "accelerator": {"types": ["h100"]}}

    advice = advise(federation, asked, now=timezone.now())

    best = advice.relaxations[0]
    assert (best.field, best.current, best.proposed) == ("accelerator.types", ("h100",), None)
    assert best.selected.system == "anvil"
    before = advice.decision.selected
    assert before is not None
    assert best.sooner_s == before.estimates.completion_s - best.selected.estimates.completion_s
    assert all((each.sooner_s or 0) >= 60 for each in advice.relaxations)
    assert "architecture" not in {each.field for each in advice.relaxations}


def test_what_fits_nowhere_is_asked_again_with_the_smallest_change(federation: User, browser: Client) -> None:
    page = browser.get("/where/?gpus_min=1&walltime_min=5-00:00:00").text

    assert "Nowhere to run as asked" in page
    (query,) = re.findall(r'href="/where/\?([^"]*)"><svg[^>]*><use[^>]*/></svg>Ask with the smallest', page)
    again = browser.get(f"/where/?{unescape(query)}").text
    assert parse_qs(unescape(query)) == {"gpus_min": ["1"], "walltime_min": ["48:00:00"]}
    assert 'id="verdict-head"' in again


def test_plain_words_become_the_address_that_says_the_same(federation: User, browser: Client) -> None:
    answer = browser.get("/where/?words=2 h100 gpus for 2 hours")

    assert answer.status_code == 302
    assert parse_qs(answer["Location"].partition("?")[2]) == {
        "gpus_min": ["2"],
        "walltime_min": ["2:00:00"],
        "accelerator_types": ["h100"],
    }


def test_words_that_say_nothing_are_said_to_be_so(federation: User, browser: Client) -> None:
    answer = browser.get("/where/?words=hello there")

    assert answer.status_code == 422
    assert 'id="words-problem"' in answer.text
    assert 'value="hello there"' in answer.text


def test_the_part_that_moves_puts_the_question_into_the_address(federation: User, browser: Client) -> None:
    answer = browser.get(f"/where/?part=answer&work=&gpus_max=&{H100}")

    assert answer["HX-Replace-Url"] == f"/where/?{H100}"
    assert "<html" not in answer.text


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("gpus_min=four", "A whole number, please"),
        ("gpus_min=4&gpus_max=2", "min 4 is greater than max 2"),
        ("gpus_min=1&allow_systems=anvill", "Did you mean `anvil`?"),
    ],
)
def test_a_fault_names_its_field_and_its_cure(
    federation: User, browser: Client, query: str, sentence: str
) -> None:
    page = unescape(browser.get(f"/where/?{query}").text)

    assert "Not yet a question" in page
    assert sentence in page


def test_asking_takes_few_queries(
    federation: User, browser: Client, django_assert_max_num_queries: Any
) -> None:
    browser.get(f"/where/?{H100}")  # a process reads each snapshot and profile once

    with django_assert_max_num_queries(14):
        browser.get(f"/where/?{H100}")
