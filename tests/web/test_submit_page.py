"""The submit page: preview, draft, faults by field, and exactly one task for one form."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from orchestrator.models import Task
from orchestrator.services.tasks import submit_task
from portal.task_templates import save_template
from tests.web.world import GPU_SCRIPT

pytestmark = pytest.mark.django_db

ONE_GPU = {"work": "command", "command": "python train.py", "gpus_min": "1", "walltime_min": "1:00:00"}


def test_the_preview_ranks_every_place_with_its_reasons(federation: User, browser: Client) -> None:
    answer = browser.post("/tasks/preview/", ONE_GPU)

    assert answer.status_code == 200
    assert "<html" not in answer.text
    assert "would be chosen" in answer.text
    assert re.search(r"Anvil gpu is chosen: it should start in 40 s", answer.text)
    assert Task.objects.count() == 0


def test_a_preview_that_fits_nowhere_says_the_smallest_change(federation: User, browser: Client) -> None:
    answer = browser.post("/tasks/preview/", ONE_GPU | {"walltime_min": "5-00:00:00"})

    assert "Nowhere to run as asked" in answer.text
    assert "comes closest" in answer.text
    assert "Too short a wall-time limit." in answer.text


def test_a_script_is_read_and_what_is_not_understood_is_shown(federation: User, browser: Client) -> None:
    answer = browser.post("/tasks/preview/", {"work": "script", "script": GPU_SCRIPT})

    assert "Read from the script" in answer.text
    assert re.search(r"<dt>GPUs</dt><dd><b>2</b> <span[^>]*>line 2</span>", answer.text)
    assert "--wibble" in answer.text


def test_filling_the_form_writes_the_script_into_empty_fields_only(federation: User, browser: Client) -> None:
    typed = {"work": "script", "script": GPU_SCRIPT, "walltime_min": "3:00:00", "action": "draft"}

    page = browser.post("/tasks/new/", typed).text

    assert re.search(r'name="gpus_min" value="2"', page)
    assert re.search(r'name="walltime_min" value="3:00:00"', page)
    assert "the form says 3 h, the script 1 h; the form counts." in page


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
        ({"gpus_min": "four"}, "gpus_min", "A whole number, please"),
        ({"gpus_min": "4", "gpus_max": "2"}, "gpus_min", "min 4 is greater than max 2"),
        ({"memory_min": "lots"}, "memory_min", ""),
        ({"workdir": "relative"}, "workdir", "must be an absolute path"),
        ({"allow_systems": "anvill"}, "allow_systems", "Did you mean `anvil`?"),
        ({"command": ""}, "command", "must not be empty"),
        ({"max_attempts": "0"}, "max_attempts", ""),
        ({"checkpoint_signal": "KILL"}, "checkpoint_signal", "KILL is not one of the available choices"),
        ({"checkpoint_signal": "USR1", "checkpoint_before": "1-00:00:00"}, "checkpoint_before", "65535"),
        ({"checkpoint_signal": "USR1", "checkpoint_before": "0"}, "checkpoint_before", "1"),
        ({"hedge": "on", "hedge_wait": "soon"}, "hedge_wait", "write time as"),
        ({"hedge": "on", "hedge_wait": "60-00:00:00"}, "hedge_wait", "2592000"),
    ],
)
def test_a_fault_is_shown_at_its_field(
    federation: User, browser: Client, typed: dict[str, str], field: str, sentence: str
) -> None:
    answer = browser.post("/tasks/new/", ONE_GPU | typed | {"action": "submit"})

    assert answer.status_code == 422
    shown = re.search(rf'id="id_{field}_error">.*?<span>(.*?)</span>', answer.text, re.DOTALL)
    assert shown is not None
    assert sentence in shown[1].replace("&#x27;", "'")
    assert Task.objects.count() == 0


def test_submitting_twice_makes_one_task(federation: User, browser: Client) -> None:
    form = ONE_GPU | {"name": "once", "once": "0123", "action": "submit"}

    first, second = browser.post("/tasks/new/", form), browser.post("/tasks/new/", form)

    task = Task.objects.get()
    assert (task.name, task.actor, task.state) == ("once", "user:mira", "placing")
    assert (first.status_code, first["Location"]) == (302, f"/tasks/{task.handle}/")
    assert second["Location"] == first["Location"]


def test_submitting_again_starts_from_the_same_words(federation: User, browser: Client) -> None:
    browser.post("/tasks/new/", ONE_GPU | {"name": "again", "gpus_max": "2", "action": "submit"})
    task = Task.objects.get()

    page = browser.get(f"/tasks/new/?from={task.handle}").text

    assert re.search(r'name="command" value="python train.py"', page)
    assert re.search(r'name="gpus_min" value="1"', page)
    assert re.search(r'name="gpus_max" value="2"', page)
    assert re.search(r'name="walltime_min" value="1:00:00"', page)


def _changes(page: str) -> dict[str, tuple[str, str]]:
    """Return the rows of "What changes": field, before and now, as read."""
    shown = re.search(r'aria-labelledby="changes-head">(.*?)</section>', page, re.DOTALL)
    assert shown is not None
    rows = re.findall(r"<dt><a [^>]*>(.*?)</a></dt><dd>(.*?)</dd>", shown[1], re.DOTALL)
    return {
        label: tuple(  # type: ignore[misc]  # two of them
            " ".join(re.sub(r"<.*?>", " ", half).split())
            for half in row.replace('<span class="sr">now</span>', "").split("</svg>")
        )
        for label, row in rows
    }


def test_submitting_again_shows_what_changes_and_what_does_not(federation: User, browser: Client) -> None:
    given = {
        "name": "md",
        "command": "python train.py",
        "objective": "Fold it.",
        "envelope": {
            "gpus": {"min": 1, "max": 2},
            "memory_mib": "64G",
            "walltime_s": "1h",
            "policy": {"prefer": ["anvil"], "exclude_systems": ["delta"]},
        },
    }
    task = submit_task(federation, given, actor="user:mira", now=timezone.now()).task
    untouched = browser.get(f"/tasks/new/?from={task.handle}").text
    form = {
        "origin": task.handle,
        "work": "command",
        "command": "python train.py",
        "name": "md",
        "gpus_min": "4",
        "memory_min": "65536M",
        "walltime_min": "60:00",
        "modules": "cuda/12.4",
        "max_attempts": "3",
    }

    page = browser.post("/tasks/preview/", form).text
    browser.post("/tasks/new/", form | {"once": "1", "action": "submit"})

    assert "Nothing yet: submitting repeats the task as it was." in untouched
    assert f'name="origin" value="{task.handle}"' in untouched
    assert _changes(page) == {
        "GPUs": ("1 … 2", "4"),
        "Never on": ("delta", "not said"),
        "Modules": ("not said", "cuda/12.4"),
    }
    assert "<code>objective</code></dt><dd>Fold it.</dd>" in page
    new = Task.objects.exclude(pk=task.pk).get()
    assert new.objective == "Fold it."
    assert new.envelope.original["policy"] == {"prefer": ["anvil"]}  # type: ignore[index]  # it is there
    assert new.envelope.original["gpus"] == 4  # type: ignore[index]


def test_a_changed_script_is_compared_line_by_line(federation: User, browser: Client) -> None:
    task = submit_task(federation, {"script": GPU_SCRIPT}, actor="user:mira", now=timezone.now()).task
    longer = GPU_SCRIPT.rstrip("\n") + "\necho done\n"

    page = browser.post(
        "/tasks/preview/",
        {"origin": task.handle, "work": "script", "script": longer.replace("\n", "\r\n"), "name": task.name},
    ).text

    lines = re.findall(r'<span class="(added|removed)">(.*?)\n</span>', page)
    assert lines == [("added", "+echo done")]


def test_files_of_a_template_come_along_when_it_is_submitted(federation: User, browser: Client) -> None:
    body = {
        "command": "true",
        "envelope": {"gpus": 1},
        "outputs": [{"uri": "globus://6f6ab4de-65b3-4d0d-8bb4-2a86e3a2b0ee/out", "path": "o"}],
    }
    row = save_template(federation, "kept", body, now=timezone.now())

    page = browser.get(f"/tasks/new/?template={row.handle}").text

    assert "against the template" in page
    assert "<code>outputs</code></dt><dd>globus://6f6ab4de-65b3-4d0d-8bb4-2a86e3a2b0ee/out o</dd>" in page


def test_nobody_compares_with_the_task_of_another(federation: User, kofi: User, client: Client) -> None:
    task = submit_task(federation, {"command": "secret"}, actor="user:mira", now=timezone.now()).task
    client.force_login(kofi)

    page = client.post("/tasks/preview/", ONE_GPU | {"origin": task.handle}).text

    assert "changes-head" not in page
    assert "secret" not in page


LASTING = {
    "checkpoint_signal": "TERM",
    "checkpoint_before": "0:05:00",
    "checkpoint_resume": "python train.py --resume",
    "hedge": "on",
    "hedge_wait": "0:10:00",
}


def _lasting_said(page: str) -> dict[str, str]:
    chosen = re.findall(
        r'<select name="(checkpoint_signal|hedge)".*?<option value="(\w*)" selected>', page, re.DOTALL
    )
    typed = re.findall(r'name="(checkpoint_\w+|hedge_wait)" value="([^"]*)"', page)
    return dict(chosen + typed)


def test_checkpoint_and_hedge_are_kept_by_the_task_and_fill_the_form_again(
    federation: User, browser: Client
) -> None:
    browser.post("/tasks/new/", ONE_GPU | LASTING | {"action": "submit"})
    task = Task.objects.get()

    assert task.spec["checkpoint"] == {
        "signal": "TERM",
        "before_s": 300,
        "resume": "python train.py --resume",
    }
    assert task.spec["hedge"] == {"enabled": True, "min_wait_s": 600}
    page = browser.get(f"/tasks/new/?from={task.handle}").text
    assert _lasting_said(page) == LASTING
    assert re.search(r"<details open><summary class=.more", page)


def test_a_template_keeps_checkpoint_and_hedge(federation: User, browser: Client) -> None:
    saved = ONE_GPU | LASTING | {"action": "save", "saved_as": "lasting"}

    page = browser.post("/tasks/new/", saved, follow=True).text

    assert _lasting_said(page) == LASTING


def test_another_users_task_cannot_be_started_from(federation: User, browser: Client, kofi: User) -> None:
    browser.post("/tasks/new/", ONE_GPU | {"action": "submit"})
    browser.force_login(kofi)

    assert browser.get(f"/tasks/new/?from={Task.objects.get().handle}").status_code == 404


def test_a_form_without_its_token_is_refused(mira: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(mira)

    assert strict.post("/tasks/new/", ONE_GPU).status_code == 403
